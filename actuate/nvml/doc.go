// Package nvml is where this program meets NVIDIA's management library. In this
// version it only says whether the library is there and how many devices it
// sees; it caps none.
package nvml
