package listen

import (
	"container/list"
	"time"
)

// actors remembers since when each actor's work is its own, for activations that
// do not say: the earliest activation of the actor that this process has seen.
// The longest unseen are forgotten first. It is not safe for concurrent use.
type actors struct {
	most int
	by   map[string]*list.Element
	seen *list.List // of actor, the last seen first
}

type actor struct {
	uid   string
	since time.Time
}

func newActors(most int) *actors {
	return &actors{most: most, by: map[string]*list.Element{}, seen: list.New()}
}

// since is the earliest time known for the actor, at when there is none.
func (a *actors) since(uid string, at time.Time) time.Time {
	if e := a.by[uid]; e != nil {
		if known := e.Value.(*actor).since; known.Before(at) {
			return known
		}
	}
	return at
}

// saw notes an activation.
func (a *actors) saw(uid string, since time.Time) {
	if uid == "" {
		return
	}
	if e := a.by[uid]; e != nil {
		a.seen.MoveToFront(e)
		if x := e.Value.(*actor); since.Before(x.since) {
			x.since = since
		}
		return
	}
	a.by[uid] = a.seen.PushFront(&actor{uid, since})
	if a.seen.Len() > a.most {
		delete(a.by, a.seen.Remove(a.seen.Back()).(*actor).uid)
	}
}
