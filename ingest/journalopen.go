package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

type journalFile struct {
	n      uint64
	suffix string
}

// files lists the snapshots and logs, the oldest first, a snapshot before the log
// of its number.
func (j *journal) files() ([]journalFile, error) {
	names, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var list []journalFile
	for _, name := range names {
		for _, suffix := range []string{snapshotSuffix, logSuffix} {
			digits, ok := strings.CutSuffix(name.Name(), suffix)
			if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
				list = append(list, journalFile{n, suffix})
			}
		}
	}
	slices.SortFunc(list, func(a, b journalFile) int {
		return cmp.Or(cmp.Compare(a.n, b.n), -cmp.Compare(a.suffix, b.suffix))
	})
	return list, nil
}

// load reads what an earlier process left into a. damage says what could not be
// read, and is empty when all could.
func (j *journal) load(a *accumulator) (damage string, err error) {
	files, err := j.files()
	if err != nil {
		return "", err
	}
	if n := len(files); n > 0 {
		j.number = files[n-1].n
	}
	for i, f := range slices.Backward(files) {
		if f.suffix == snapshotSuffix {
			files = files[i:]
			break
		}
	}
	r := reading{a: a, series: map[uint64]*runningSum{}, streams: map[uint64]*streamState{}}
	for i, f := range files {
		name := j.path(f.n, f.suffix)
		b, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		torn, err := r.file(b)
		switch {
		case errors.Is(err, errDamaged):
		case err != nil:
			return "", fmt.Errorf("%s: %w", name, err)
		case f.suffix == snapshotSuffix && !r.ended:
			err = fmt.Errorf("%w: it ends early", errDamaged)
		case torn && i < len(files)-1:
			err = fmt.Errorf("%w: it ends early, and there is a newer one", errDamaged)
		case torn:
			j.m.torn.Inc()
			j.log.Warn("the last record of the running sums was not written to its end and is dropped: it was not acknowledged", "file", name)
		}
		if err != nil {
			return j.setAside(files[i:], fmt.Errorf("%s: %w", name, err)), nil
		}
	}
	return "", nil
}

// setAside keeps the files that were not read to their end, under another name.
func (j *journal) setAside(files []journalFile, why error) string {
	j.m.damaged.Inc()
	j.log.Error("the running sums are damaged: those read so far go on from there or from what is stored; the files are kept", "err", why)
	for _, f := range files {
		name := j.path(f.n, f.suffix)
		if err := os.Rename(name, name+damagedSuffix); err != nil {
			j.log.Error("a damaged file could not be set aside", "err", err)
		}
	}
	return why.Error()
}
