package sim

// Caps returns the power limit of each package in watts as the last Tick found
// it, by the package's name: cpu0.
func (n *Node) Caps() map[string]float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	caps := map[string]float64{}
	for _, p := range n.packages {
		caps[p.id] = p.cap
	}
	return caps
}
