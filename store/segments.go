package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// logNames are the TSDB's write-ahead log and its log of out-of-order samples.
// A late sample lives in memory and in both.
var logNames = [...]string{"wal", "wbl"}

// segmentLogs fsyncs what the TSDB has written to its logs, through file
// descriptors of its own. The TSDB fsyncs a segment as it leaves it, in the
// background, and tells nobody of a failure; a descriptor that was open when a
// write failed is told, once. After a failure that descriptor is worth nothing
// more, so the caller must not ask again before reset.
type segmentLogs struct {
	root  string
	logs  [len(logNames)]*segmentLog
	fsync func(*os.File) error

	mu     sync.Mutex
	synced map[string]int64
}

func newSegmentLogs(root string) *segmentLogs {
	l := &segmentLogs{root: root, fsync: (*os.File).Sync, synced: map[string]int64{}}
	for i, name := range logNames {
		l.logs[i] = &segmentLog{name: name, index: -1}
	}
	return l
}

// syncAll makes durable all that was in the logs when it was called.
func (l *segmentLogs) syncAll() error {
	for _, log := range l.logs {
		if err := log.sync(l); err != nil {
			return err
		}
	}
	return nil
}

// reset lets the descriptors go; the next syncAll begins at the oldest segment.
func (l *segmentLogs) reset() {
	for _, log := range l.logs {
		log.close()
	}
}

// Synced tells for each segment, by its path below the folder, how many of its
// bytes were on the disk at the last fsync. What was acknowledged lies below.
func (db *DB) Synced() map[string]int64 {
	db.logs.mu.Lock()
	defer db.logs.mu.Unlock()
	return maps.Clone(db.logs.synced)
}

// record takes over the offsets of one log and forgets segments that are gone.
func (l *segmentLogs) record(log string, oldest, newest int, sizes map[int]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.synced {
		dir, file := filepath.Split(name)
		if i, err := strconv.Atoi(file); err == nil && filepath.Clean(dir) == log && (i < oldest || i > newest) {
			delete(l.synced, name)
		}
	}
	for i, size := range sizes {
		l.synced[segmentPath(log, i)] = size
	}
}

// grown takes over the offset of one segment that was known before.
func (l *segmentLogs) grown(segment string, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced[segment] = size
}

// segmentLog is the place in one log up to which all is on the disk: segment
// index, held open, to size bytes.
type segmentLog struct {
	name  string
	file  *os.File
	index int // of file; -1: none
	size  int64
}

func (s *segmentLog) close() {
	if s.file != nil {
		s.file.Close() // read only, nothing to lose
	}
	*s = segmentLog{name: s.name, index: -1}
}

// sync fsyncs from the last synced segment to the newest, and the directory
// when a segment was new. A commit ends in the segments that exist when it
// returns, so what comes while this runs belongs to the next round.
func (s *segmentLog) sync(l *segmentLogs) error {
	if info, ok := s.newest(l.root); ok {
		if info.Size() == s.size {
			return nil
		}
		if err := l.fsync(s.file); err != nil {
			return fmt.Errorf("fsync %s: %w", s.file.Name(), err)
		}
		s.size = info.Size()
		l.grown(segmentPath(s.name, s.index), s.size)
		return nil
	}
	return s.syncFrom(l)
}

// newest says that the segment that is open is the last one, as nearly always,
// and how large it is. Segments are numbered without gaps and deleted from the
// oldest on: nobody comes after one that is there and has no next.
func (s *segmentLog) newest(root string) (os.FileInfo, bool) {
	if s.file == nil {
		return nil, false
	}
	if err := unix.Access(filepath.Join(root, segmentPath(s.name, s.index+1)), unix.F_OK); err != unix.ENOENT {
		return nil, false
	}
	info, err := s.file.Stat()
	if err != nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return info, ok && st.Nlink > 0
}

// syncFrom looks into the directory for what is to be synced.
func (s *segmentLog) syncFrom(l *segmentLogs) error {
	dir, err := os.Open(filepath.Join(l.root, s.name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	oldest, newest, err := segmentRange(dir)
	if err != nil || newest < 0 {
		return err
	}
	sizes := map[int]int64{}
	opened := false
	for i := max(s.index, oldest); i <= newest; i++ {
		fresh, err := s.moveTo(l.root, i)
		if errors.Is(err, fs.ErrNotExist) {
			continue // truncated since: its samples are in a block or a checkpoint
		}
		if err != nil {
			return err
		}
		opened = opened || fresh
		info, err := s.file.Stat()
		if err != nil {
			return err
		}
		if !fresh && info.Size() == s.size {
			continue
		}
		if err := l.fsync(s.file); err != nil {
			return fmt.Errorf("fsync %s: %w", s.file.Name(), err)
		}
		s.size, sizes[i] = info.Size(), info.Size()
	}
	if opened {
		if err := l.fsync(dir); err != nil {
			return fmt.Errorf("fsync %s: %w", dir.Name(), err)
		}
	}
	if len(sizes) > 0 {
		l.record(s.name, oldest, newest, sizes)
	}
	return nil
}

// moveTo holds segment i open and says whether it was not before.
func (s *segmentLog) moveTo(root string, i int) (fresh bool, err error) {
	if s.file != nil && s.index == i {
		return false, nil
	}
	f, err := os.Open(filepath.Join(root, segmentPath(s.name, i)))
	if err != nil {
		return false, err
	}
	s.close()
	s.file, s.index = f, i
	return true, nil
}

func segmentPath(log string, i int) string {
	return filepath.Join(log, fmt.Sprintf("%08d", i))
}

// segmentRange reads the oldest and the newest index in a log's directory, -1
// when there is none. Other names there are checkpoints and files of repairs.
func segmentRange(dir *os.File) (oldest, newest int, err error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, 0, err
	}
	oldest, newest = -1, -1
	for _, n := range names {
		i, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if oldest < 0 || i < oldest {
			oldest = i
		}
		newest = max(newest, i)
	}
	return oldest, newest, nil
}
