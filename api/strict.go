package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/wattloop/wattloop/internal/nearest"
)

// strictJSON reads one JSON value into a struct and refuses what encoding/json
// would let pass: a key that the struct does not have in just that spelling, a key
// that stands twice, null, text that is none, and anything after the value.
func strictJSON(data []byte, into any) error {
	if err := checkText(data); err != nil {
		return err
	}
	if err := checkKeys(data, reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		var te *json.UnmarshalTypeError
		if errors.As(err, &te) {
			return fmt.Errorf("%s: want %s, got %s", te.Field, kindWord(te.Type), te.Value)
		}
		var pe *time.ParseError
		if errors.As(err, &pe) {
			return fmt.Errorf("%s is no time; write it like 2026-01-02T15:04:05Z (RFC 3339)", pe.Value)
		}
		return err
	}
	return nil
}

// DecodeStrict reads one of the API's own documents from a person: what the API
// would refuse, it refuses.
func DecodeStrict(data []byte, into any) error {
	if !json.Valid(data) {
		return errors.New("no JSON")
	}
	return strictJSON(data, into)
}

// checkKeys walks the objects of data along the structs of t. path is the place
// for messages.
func checkKeys(data []byte, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) || t.Kind() != reflect.Struct {
		return nil // it reads itself, or has no keys
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	if tok != json.Delim('{') {
		return fmt.Errorf("%swant an object", placed(path))
	}
	fields := map[string]reflect.Type{}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = t.Field(i).Type
		names = append(names, name)
	}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := tok.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		ft, known := fields[key]
		switch {
		case !known:
			return fmt.Errorf("%sunknown field %q%s", placed(path), key, meant(key, names))
		case seen[key]:
			return fmt.Errorf("%sfield %q stands twice", placed(path), key)
		case string(value) == "null":
			return fmt.Errorf("%sfield %q is null; leave it out", placed(path), key)
		}
		seen[key] = true
		if err := checkKeys(value, ft, path+key+"."); err != nil {
			return err
		}
	}
	return nil
}

func placed(path string) string {
	if path == "" {
		return ""
	}
	return strings.TrimSuffix(path, ".") + ": "
}

func kindWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Int, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// meant suggests the field that a mistyped one probably means.
func meant(key string, names []string) string {
	lower := strings.ToLower(key)
	best := nearest.Of(lower, names)
	if slices.Contains(names, lower) {
		best = lower
	}
	if best == "" {
		return "; known are " + strings.Join(names, ", ")
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}
