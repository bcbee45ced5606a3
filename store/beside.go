package store

import "github.com/prometheus/prometheus/storage"

// Beside is another store that every query reads together with this one, as if
// both were one: nil is none. Series of the same labels are one series. A query
// that the other fails to answer has no answer: half of the samples are no basis
// to act on.
type Beside struct {
	Rules  storage.Queryable // for Instant and Interval
	People storage.Queryable // for ad-hoc queries
}

// together reads own and beside as one.
func together(own, beside storage.Queryable) storage.Queryable {
	if beside == nil {
		return own
	}
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		o, err := own.Querier(mint, maxt)
		if err != nil {
			return nil, err
		}
		b, err := beside.Querier(mint, maxt)
		if err != nil {
			o.Close()
			return nil, err
		}
		// Both are primaries: what a secondary fails to answer is a warning there.
		return storage.NewMergeQuerier([]storage.Querier{o, b}, nil, storage.ChainedSeriesMerge), nil
	})
}
