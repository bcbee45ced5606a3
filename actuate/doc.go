// Package actuate turns intents into settings of devices. It knows nothing of
// rules, queries or storage, and it never touches hardware itself: the warden
// does, over a Link.
package actuate
