package rules

// shape says what may stand at one place of a rule file: a single value, a list
// of them, or a mapping with the keys named here or with names of the author's.
type shape struct {
	kind  kind
	keys  map[string]*shape
	any   *shape            // of a mapping whose keys are names
	later map[string]string // keys that the language has and this version does not run
}

var (
	one  = &shape{kind: scalar}
	many = &shape{kind: list}
	pair = &shape{kind: mapping, any: one}
)

func keyed(keys map[string]*shape, later map[string]string) *shape {
	return &shape{kind: mapping, keys: keys, later: later}
}

const laterText = "not in this version of wattloop"

// language is version 1 as far as this wattloop runs it.
var language = keyed(map[string]*shape{
	"version":  one,
	"rate":     one,
	"interval": one,
	"params":   {kind: mapping, any: paramShape},
	"readings": {kind: mapping, any: readingShape},
	"controls": {kind: mapping, any: controlShape},
}, map[string]string{
	"flags":   "flags: " + laterText + ", which reads params, readings and controls",
	"vendors": "vendors: " + laterText + "; write the maker's metric names into the expression",
	"groups":  "groups: Prometheus rule files are " + laterText + ", which reads version: 1 files",
})

var paramShape = keyed(map[string]*shape{
	"value": one, "unit": one, "help": one, "min": one, "max": one, "replace": one,
}, nil)

var readingShape = keyed(map[string]*shape{
	"help": one, "unit": one, "key": many, "expr": one, "rate": one, "interval": one,
	"forget_after": one, "stale_after": one, "replace": one, "note": one,
	"use": one, "variants": {kind: mapping, any: variantShape},
}, map[string]string{
	"family": "family: " + laterText,
	"vendor": "vendor: " + laterText + "; write the maker's metric names into expr",
})

var variantShape = keyed(map[string]*shape{"help": one, "key": many, "expr": one, "note": one}, nil)

var controlShape = keyed(map[string]*shape{
	"help": one, "mode": one, "key": many, "with": pair,
	"engage": conditionShape, "release": conditionShape,
	"action": one, "target": pair, "value": one,
	"limits": keyed(map[string]*shape{"min": one, "max": one}, nil),
	"slew":   keyed(map[string]*shape{"down": one, "up": one, "every": one}, nil),
	"ttl":    one, "purpose": one, "safe_cap": one, "on_stop": one, "stale_after": one,
	"safe_when_blind": one, "observe_after": one, "interval": one, "replace": one,
	"trusted_channels": many,
}, nil)

var conditionShape = keyed(map[string]*shape{"when": one, "for": one}, nil)
