package ingest

// jsonKind is how a field is written, in JSON and on the wire.
type jsonKind uint8

const (
	jsonMessage jsonKind = iota
	jsonMessages
	jsonString
	jsonBytes
	jsonBool
	jsonInt64   // varint
	jsonUint32  // varint
	jsonTime    // fixed64
	jsonSigned  // sfixed64
	jsonDouble  // fixed64
	jsonTimes   // packed fixed64
	jsonDoubles // packed
	jsonEnum
)

type jsonField struct {
	num  uint32
	kind jsonKind
	msg  jsonType
}

type jsonType uint8

const (
	jsonRequest jsonType = iota
	jsonResourceMetrics
	jsonResource
	jsonScopeMetrics
	jsonScope
	jsonMetric
	jsonGauge
	jsonSum
	jsonHistogram
	jsonUnsupported
	jsonNumberPoint
	jsonHistogramPoint
	jsonUnsupportedPoint
	jsonKeyValue
	jsonAny
	jsonArray
	jsonKeyValueList
)

var jsonSchema = [...]map[string]jsonField{
	jsonRequest: camelAndSnake(map[string]jsonField{
		"resource_metrics": {1, jsonMessages, jsonResourceMetrics}}),
	jsonResourceMetrics: camelAndSnake(map[string]jsonField{
		"resource": {1, jsonMessage, jsonResource}, "scope_metrics": {2, jsonMessages, jsonScopeMetrics}}),
	jsonResource: {"attributes": {1, jsonMessages, jsonKeyValue}},
	jsonScopeMetrics: {
		"scope": {1, jsonMessage, jsonScope}, "metrics": {2, jsonMessages, jsonMetric}},
	jsonScope: {
		"name": {1, jsonString, 0}, "version": {2, jsonString, 0}, "attributes": {3, jsonMessages, jsonKeyValue}},
	jsonMetric: camelAndSnake(map[string]jsonField{
		"name": {1, jsonString, 0}, "unit": {3, jsonString, 0},
		"gauge": {5, jsonMessage, jsonGauge}, "sum": {7, jsonMessage, jsonSum},
		"histogram":             {9, jsonMessage, jsonHistogram},
		"exponential_histogram": {10, jsonMessage, jsonUnsupported},
		"summary":               {11, jsonMessage, jsonUnsupported}}),
	jsonGauge: camelAndSnake(map[string]jsonField{
		"data_points": {1, jsonMessages, jsonNumberPoint}}),
	jsonSum: camelAndSnake(map[string]jsonField{
		"data_points":             {1, jsonMessages, jsonNumberPoint},
		"aggregation_temporality": {2, jsonEnum, 0}, "is_monotonic": {3, jsonBool, 0}}),
	jsonHistogram: camelAndSnake(map[string]jsonField{
		"data_points":             {1, jsonMessages, jsonHistogramPoint},
		"aggregation_temporality": {2, jsonEnum, 0}}),
	jsonUnsupported: camelAndSnake(map[string]jsonField{
		"data_points": {1, jsonMessages, jsonUnsupportedPoint}}),
	jsonNumberPoint: camelAndSnake(map[string]jsonField{
		"attributes": {7, jsonMessages, jsonKeyValue}, "flags": {8, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"as_double": {4, jsonDouble, 0}, "as_int": {6, jsonSigned, 0}}),
	jsonHistogramPoint: camelAndSnake(map[string]jsonField{
		"attributes": {9, jsonMessages, jsonKeyValue}, "flags": {10, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"count": {4, jsonTime, 0}, "sum": {5, jsonDouble, 0},
		"bucket_counts": {6, jsonTimes, 0}, "explicit_bounds": {7, jsonDoubles, 0}}),
	jsonUnsupportedPoint: {},
	jsonKeyValue:         {"key": {1, jsonString, 0}, "value": {2, jsonMessage, jsonAny}},
	jsonAny: camelAndSnake(map[string]jsonField{
		"string_value": {1, jsonString, 0}, "bool_value": {2, jsonBool, 0},
		"int_value": {3, jsonInt64, 0}, "double_value": {4, jsonDouble, 0},
		"array_value":  {5, jsonMessage, jsonArray},
		"kvlist_value": {6, jsonMessage, jsonKeyValueList}, "bytes_value": {7, jsonBytes, 0}}),
	jsonArray:        {"values": {1, jsonMessages, jsonAny}},
	jsonKeyValueList: {"values": {1, jsonMessages, jsonKeyValue}},
}

// camelAndSnake adds the lowerCamelCase spelling of each name of a .proto file.
func camelAndSnake(snake map[string]jsonField) map[string]jsonField {
	both := make(map[string]jsonField, 2*len(snake))
	for name, f := range snake {
		both[name] = f
		var camel []byte
		for i := 0; i < len(name); i++ {
			if name[i] == '_' {
				i++
				camel = append(camel, name[i]-'a'+'A')
				continue
			}
			camel = append(camel, name[i])
		}
		both[string(camel)] = f
	}
	return both
}
