package webfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// ErrBusy is that too many passwords wait to be checked: ask again in a second.
var ErrBusy = errors.New("too many passwords are being checked: try again in a second")

const (
	// maxTries wait for bcrypt, the one at work included, which bounds how long
	// somebody who logs in waits: half a second at the usual cost of 10.
	maxTries = 8
	// maxKnown of each kind are remembered.
	maxKnown = 256
)

// try is a user, the hash of the file and a password.
type try [sha256.Size]byte

// passwords is what bcrypt, slow on purpose, said of the tries so far: it is asked
// for each request. Wrong ones are remembered apart, lest they push out others.
type passwords struct {
	compare func(hash, password []byte) error
	work    chan struct{} // one bcrypt at a time

	tries         sync.Mutex
	proven, wrong map[try]bool
	waiting       map[try]*verdict
}

// verdict is of a try that waits; fits is to be read once done is closed.
type verdict struct {
	done chan struct{}
	fits bool
}

func newPasswords() passwords {
	return passwords{compare: bcrypt.CompareHashAndPassword, work: make(chan struct{}, 1), proven: map[try]bool{}, wrong: map[try]bool{}, waiting: map[try]*verdict{}}
}

// Password reports whether the user has the password, or ErrBusy. One that was
// proven before is known without waiting; the rest wait for few others.
func (f *File) Password(user, password string) (bool, error) {
	hash, known := f.now().Users[user]
	stored := string(hash)
	if !known {
		stored = f.anyHash() // so that the time tells nobody who there is
	}
	fits, err := f.check(sha256.Sum256(fmt.Appendf(nil, "%q %q %q", user, stored, password)), stored, password)
	return fits && known, err
}

// anyHash is that of the first user: a comparison that costs what theirs do.
func (f *File) anyHash() string {
	users := f.now().Users
	if len(users) == 0 {
		return noHash
	}
	return string(users[slices.Min(slices.Collect(maps.Keys(users)))])
}

// noHash is a hash of nothing that anybody knows.
const noHash = "$2a$10$fGFRzqxH1129VeilSYF9guflFDjKTjb9.xCd.mZc7wmBAKL29kZgu"

func (p *passwords) check(t try, hash, password string) (bool, error) {
	p.tries.Lock()
	if p.proven[t] || p.wrong[t] {
		defer p.tries.Unlock()
		return p.proven[t], nil
	}
	v, same := p.waiting[t]
	if !same && len(p.waiting) >= maxTries {
		p.tries.Unlock()
		return false, ErrBusy
	}
	if !same {
		v = &verdict{done: make(chan struct{})}
		p.waiting[t] = v
	}
	p.tries.Unlock()
	if same {
		<-v.done
		return v.fits, nil
	}
	p.work <- struct{}{}
	v.fits = p.compare([]byte(hash), []byte(password)) == nil
	<-p.work
	p.tries.Lock()
	defer p.tries.Unlock()
	delete(p.waiting, t)
	p.remember(t, v.fits)
	close(v.done)
	return v.fits, nil
}

// remember needs p.tries held.
func (p *passwords) remember(t try, fits bool) {
	m := p.wrong
	if fits {
		m = p.proven
	}
	if len(m) >= maxKnown {
		clear(m)
	}
	m[t] = true
}
