package twin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/wattloop/wattloop/internal/disk"
)

// nodeName is what may be the name of a folder: the names that Kubernetes gives,
// and no name that a file system takes for something else.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// ValidNode says whether a node's name can stand in a path.
func ValidNode(node string) bool { return nodeName.MatchString(node) }

// mostFolders bounds how many nodes have files: their names come in with samples.
const mostFolders = 4096

// Files keeps the documents of every node in Dir/NODE/twin.json and hardware.json,
// for programs that read files. A file is replaced whole, and only when something
// of it has changed beside the times in it. It is for one goroutine.
type Files struct {
	Dir string // is made when the first file is

	known map[string]map[string]string // node -> file -> what it says, without times
}

// Begin removes what an earlier process said of its nodes: a value of then is no
// value of now (S0-90). What a person has put there stays.
func (f *Files) Begin() error {
	f.known = map[string]map[string]string{}
	var failed []error
	for _, name := range []string{"twin.json", "twin.json" + disk.Unfinished, "hardware.json" + disk.Unfinished} {
		old, err := fs.Glob(os.DirFS(f.Dir), "*/"+name)
		if err != nil {
			return fmt.Errorf("twin: %w", err)
		}
		for _, p := range old {
			failed = append(failed, os.Remove(filepath.Join(f.Dir, p)))
		}
	}
	return errors.Join(failed...)
}

// Write brings the files up to the documents. Nodes that have none any more lose
// theirs. A node whose name can be no folder's has no files.
func (f *Files) Write(twins []Twin, hardware Hardware) error {
	if f.known == nil {
		f.known = map[string]map[string]string{}
	}
	var failed []error
	there := map[string]bool{}
	for _, t := range twins {
		node := t.Metadata.Name
		if !ValidNode(node) || len(there) >= mostFolders {
			continue
		}
		there[node] = true
		failed = append(failed, f.put(node, "twin.json", t, t.timeless()))
	}
	if node := hardware.Metadata.Name; ValidNode(node) {
		there[node] = true
		failed = append(failed, f.put(node, "hardware.json", hardware, hardware))
	}
	for node := range f.known {
		if !there[node] {
			failed = append(failed, f.drop(node))
		}
	}
	return errors.Join(failed...)
}

func (f *Files) put(node, name string, doc, timeless any) error {
	mark, err := json.Marshal(timeless)
	if err != nil {
		return fmt.Errorf("twin: %s of %s: %w", name, node, err)
	}
	if f.known[node][name] == string(mark) {
		return nil
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("twin: %s of %s: %w", name, node, err)
	}
	if err := replace(filepath.Join(f.Dir, node, name), append(text, '\n'), true); err != nil {
		return err
	}
	if f.known[node] == nil {
		f.known[node] = map[string]string{}
	}
	f.known[node][name] = string(mark)
	return nil
}

func (f *Files) drop(node string) error {
	for name := range f.known[node] {
		if err := os.Remove(filepath.Join(f.Dir, node, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("twin: %w", err)
		}
	}
	delete(f.known, node)
	os.Remove(filepath.Join(f.Dir, node)) // stays where a person has put something into it
	return nil
}

// timeless is the document without what changes though nothing has happened.
func (t Twin) timeless() Twin {
	t.Status.LastUpdated = nil
	t.Status.PowerMeasurement.AgeSeconds = nil
	t.Status.ControlStatus.CPU.TS, t.Status.ControlStatus.GPU.TS = nil, nil
	return t
}

// replace writes a file that everybody may read, and makes its folder.
func replace(path string, text []byte, hasty bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("twin: %w", err)
	}
	if err := (disk.File{Path: path, Mode: 0o644, Hasty: hasty}).Replace(text); err != nil {
		return fmt.Errorf("twin: %w", err)
	}
	return nil
}
