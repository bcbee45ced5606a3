package webfile

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/crypto/bcrypt"
)

func usersOf(t *testing.T, text string) *File {
	t.Helper()
	f, err := Open(write(t, t.TempDir(), "web.yml", "basic_auth_users:\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// P12: whoever tries passwords delays nobody who has proved his, and anybody else
// by the few that wait at most: the next one is told to come again at once.
func TestTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := usersOf(t, "  alice: "+hashOf(t, "one")+"\n")
		if fits, err := f.Password("alice", "one"); !fits || err != nil {
			t.Fatalf("alice: %v, %v", fits, err)
		}
		goOn := make(chan struct{})
		var slow atomic.Int32
		f.compare = func([]byte, []byte) error {
			slow.Add(1)
			<-goOn
			return bcrypt.ErrMismatchedHashAndPassword
		}
		var all sync.WaitGroup
		try := func(i int) {
			all.Go(func() {
				if fits, err := f.Password("mallory", fmt.Sprint(i)); fits || err != nil {
					t.Errorf("try %d: %v, %v", i, fits, err)
				}
			})
		}
		for i := range maxTries {
			try(i)
			try(i) // the same again waits with the first, and costs nothing more
		}
		synctest.Wait()
		if n := slow.Load(); n != 1 {
			t.Errorf("%d comparisons at a time; want 1", n)
		}
		for _, user := range []string{"mallory", "alice"} {
			if fits, err := f.Password(user, "another"); fits || !errors.Is(err, ErrBusy) {
				t.Errorf("one more of %s: %v, %v; want %v", user, fits, err, ErrBusy)
			}
		}
		if fits, err := f.Password("alice", "one"); !fits || err != nil {
			t.Errorf("who is proven: %v, %v", fits, err)
		}
		close(goOn)
		all.Wait()
		if n := slow.Load(); n != maxTries {
			t.Errorf("%d comparisons of %d tries", n, maxTries)
		}
		if fits, err := f.Password("mallory", "another"); fits || err != nil {
			t.Errorf("afterwards: %v, %v", fits, err)
		}
	})
}

// However many passwords are tried, one that was proven needs no second proof.
func TestTriesForgetNobody(t *testing.T) {
	f := usersOf(t, "  alice: "+hashOf(t, "one")+"\n")
	n := 0
	f.compare = func(hash, password []byte) error {
		n++
		return map[bool]error{false: bcrypt.ErrMismatchedHashAndPassword}[string(password) == "one"]
	}
	for i := range 2000 {
		if fits, _ := f.Password("alice", "one"); !fits {
			t.Fatal("alice is not let in")
		}
		if fits, _ := f.Password("alice", fmt.Sprint(i)); fits {
			t.Fatal("a wrong password fits")
		}
	}
	if n != 2001 {
		t.Errorf("%d comparisons; want 2000 of wrong ones and 1 of alice", n)
	}
	if len(f.wrong) > 256 || len(f.proven) != 1 {
		t.Errorf("%d wrong and %d proven are remembered", len(f.wrong), len(f.proven))
	}
}

// An unknown user costs what a known one does: the same work is asked for.
func TestUnknownUsersCostTheSame(t *testing.T) {
	for _, cost := range []int{bcrypt.MinCost, bcrypt.MinCost + 1} {
		hash, err := bcrypt.GenerateFromPassword([]byte("one"), cost)
		if err != nil {
			t.Fatal(err)
		}
		f := usersOf(t, "  alice: "+string(hash)+"\n")
		var costs []int
		f.compare = func(hash, password []byte) error {
			c, err := bcrypt.Cost(hash)
			if err != nil {
				t.Error(err)
			}
			costs = append(costs, c)
			return bcrypt.CompareHashAndPassword(hash, password)
		}
		for user, want := range map[string]bool{"alice": true, "bob": false} {
			if fits, err := f.Password(user, "one"); fits != want || err != nil {
				t.Errorf("%s: %v, %v", user, fits, err)
			}
		}
		if len(costs) != 2 || costs[0] != cost || costs[1] != cost {
			t.Errorf("costs %v; want %d twice", costs, cost)
		}
	}
}
