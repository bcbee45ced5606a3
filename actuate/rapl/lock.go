package rapl

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/wattloop/wattloop/sysfs"
)

// packageLimit is MSR_PKG_POWER_LIMIT; bit 63 locks both limits until the next
// reset (Intel SDM volume 4). AMD has no such register.
const packageLimit = 0x610

// Locked says whether firmware has locked the limits of a CPU package, as the
// package's own register tells it below dev, which is /dev. It is not known where
// that file cannot be read: the module msr is not loaded, this is not root, the
// kernel is locked down, or the CPU has no such register; then a lock shows at
// the first write. Nothing is written.
func Locked(f sysfs.FS, dev string, socket int) (locked, known bool) {
	entries, err := os.ReadDir(filepath.Join(dev, "cpu"))
	if err != nil {
		return false, false
	}
	for _, e := range entries {
		var cpu int
		if n, err := fmt.Sscanf(e.Name(), "%d", &cpu); n != 1 || err != nil || sysfs.Socket(f, cpu) != socket {
			continue
		}
		v, err := readMSR(filepath.Join(dev, "cpu", e.Name(), "msr"), packageLimit)
		if err != nil {
			return false, false
		}
		return v>>63 == 1, true
	}
	return false, false
}

// readMSR reads one register; its number is the offset in the file.
func readMSR(path string, register int64) (uint64, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var b [8]byte
	n, err := unix.Pread(fd, b[:], register)
	if err == nil && n != len(b) {
		err = unix.EIO
	}
	return binary.LittleEndian.Uint64(b[:]), err
}
