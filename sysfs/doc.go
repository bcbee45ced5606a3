// Package sysfs is the one door to a tree of kernel attributes: every read and
// every write of a sysfs file goes through FS, and the RAPL zones of a machine
// are found here. It decides nothing about values; what may be written, and
// when, is the business of its callers.
package sysfs
