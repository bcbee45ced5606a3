// Package listen opens and closes the doors of channels while the process runs:
// TCP addresses and unix sockets that exist only while an activation is live.
// What is accepted at a door belongs to that activation, or is refused. It knows
// nothing of what is in a request, and nobody's configuration.
package listen
