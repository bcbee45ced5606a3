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
	jsonCount   // uint64, varint
	jsonUint32  // varint
	jsonTime    // fixed64
	jsonSigned  // sfixed64
	jsonDouble  // fixed64
	jsonTimes   // packed fixed64
	jsonDoubles // packed
	jsonCounts  // packed varints
	jsonZigzag  // sint32
	jsonEnum    // an AggregationTemporality
	jsonSpanKind
	jsonStatusCode
	jsonSeverity
	jsonHex // bytes
	jsonFixed4
	jsonStrings
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
	jsonExpHistogram
	jsonSummary
	jsonNumberPoint
	jsonHistogramPoint
	jsonExpHistogramPoint
	jsonBuckets
	jsonSummaryPoint
	jsonQuantile
	jsonExemplar
	jsonKeyValue
	jsonAny
	jsonArray
	jsonKeyValueList
	jsonEntityRef
	jsonTraceRequest
	jsonResourceSpans
	jsonScopeSpans
	jsonSpan
	jsonSpanEvent
	jsonSpanLink
	jsonStatus
	jsonLogsRequest
	jsonResourceLogs
	jsonScopeLogs
	jsonLogRecord
)

var jsonSchema = [...]map[string]jsonField{
	jsonRequest: camelAndSnake(map[string]jsonField{
		"resource_metrics": {1, jsonMessages, jsonResourceMetrics}}),
	jsonResourceMetrics: camelAndSnake(map[string]jsonField{
		"resource": {1, jsonMessage, jsonResource}, "scope_metrics": {2, jsonMessages, jsonScopeMetrics}, "schema_url": {3, jsonString, 0}}),
	jsonResource: camelAndSnake(map[string]jsonField{
		"attributes": {1, jsonMessages, jsonKeyValue}, "dropped_attributes_count": {2, jsonUint32, 0},
		"entity_refs": {3, jsonMessages, jsonEntityRef}}),
	jsonEntityRef: camelAndSnake(map[string]jsonField{
		"schema_url": {1, jsonString, 0}, "type": {2, jsonString, 0},
		"id_keys": {3, jsonStrings, 0}, "description_keys": {4, jsonStrings, 0}}),
	jsonScopeMetrics: camelAndSnake(map[string]jsonField{
		"scope": {1, jsonMessage, jsonScope}, "metrics": {2, jsonMessages, jsonMetric}, "schema_url": {3, jsonString, 0}}),
	jsonScope: camelAndSnake(map[string]jsonField{
		"name": {1, jsonString, 0}, "version": {2, jsonString, 0}, "attributes": {3, jsonMessages, jsonKeyValue},
		"dropped_attributes_count": {4, jsonUint32, 0}}),
	jsonMetric: camelAndSnake(map[string]jsonField{
		"name": {1, jsonString, 0}, "description": {2, jsonString, 0}, "unit": {3, jsonString, 0},
		"metadata": {12, jsonMessages, jsonKeyValue},
		"gauge":    {5, jsonMessage, jsonGauge}, "sum": {7, jsonMessage, jsonSum},
		"histogram":             {9, jsonMessage, jsonHistogram},
		"exponential_histogram": {10, jsonMessage, jsonExpHistogram},
		"summary":               {11, jsonMessage, jsonSummary}}),
	jsonGauge: camelAndSnake(map[string]jsonField{
		"data_points": {1, jsonMessages, jsonNumberPoint}}),
	jsonSum: camelAndSnake(map[string]jsonField{
		"data_points":             {1, jsonMessages, jsonNumberPoint},
		"aggregation_temporality": {2, jsonEnum, 0}, "is_monotonic": {3, jsonBool, 0}}),
	jsonHistogram: camelAndSnake(map[string]jsonField{
		"data_points":             {1, jsonMessages, jsonHistogramPoint},
		"aggregation_temporality": {2, jsonEnum, 0}}),
	jsonExpHistogram: camelAndSnake(map[string]jsonField{
		"data_points":             {1, jsonMessages, jsonExpHistogramPoint},
		"aggregation_temporality": {2, jsonEnum, 0}}),
	jsonSummary: camelAndSnake(map[string]jsonField{
		"data_points": {1, jsonMessages, jsonSummaryPoint}}),
	jsonNumberPoint: camelAndSnake(map[string]jsonField{
		"attributes": {7, jsonMessages, jsonKeyValue}, "flags": {8, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"as_double": {4, jsonDouble, 0}, "as_int": {6, jsonSigned, 0},
		"exemplars": {5, jsonMessages, jsonExemplar}}),
	jsonHistogramPoint: camelAndSnake(map[string]jsonField{
		"attributes": {9, jsonMessages, jsonKeyValue}, "flags": {10, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"count": {4, jsonTime, 0}, "sum": {5, jsonDouble, 0},
		"bucket_counts": {6, jsonTimes, 0}, "explicit_bounds": {7, jsonDoubles, 0},
		"exemplars": {8, jsonMessages, jsonExemplar}}),
	jsonExpHistogramPoint: camelAndSnake(map[string]jsonField{
		"attributes": {1, jsonMessages, jsonKeyValue}, "flags": {10, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"count": {4, jsonTime, 0}, "sum": {5, jsonDouble, 0}, "scale": {6, jsonZigzag, 0},
		"zero_count": {7, jsonTime, 0}, "zero_threshold": {14, jsonDouble, 0},
		"positive": {8, jsonMessage, jsonBuckets}, "negative": {9, jsonMessage, jsonBuckets},
		"exemplars": {11, jsonMessages, jsonExemplar}}),
	jsonBuckets: camelAndSnake(map[string]jsonField{
		"offset": {1, jsonZigzag, 0}, "bucket_counts": {2, jsonCounts, 0}}),
	jsonSummaryPoint: camelAndSnake(map[string]jsonField{
		"attributes": {7, jsonMessages, jsonKeyValue}, "flags": {8, jsonUint32, 0},
		"start_time_unix_nano": {2, jsonTime, 0}, "time_unix_nano": {3, jsonTime, 0},
		"count": {4, jsonTime, 0}, "sum": {5, jsonDouble, 0},
		"quantile_values": {6, jsonMessages, jsonQuantile}}),
	jsonQuantile: {"quantile": {1, jsonDouble, 0}, "value": {2, jsonDouble, 0}},
	jsonExemplar: camelAndSnake(map[string]jsonField{
		"filtered_attributes": {7, jsonMessages, jsonKeyValue}, "time_unix_nano": {2, jsonTime, 0},
		"as_double": {3, jsonDouble, 0}, "as_int": {6, jsonSigned, 0},
		"span_id": {4, jsonHex, 0}, "trace_id": {5, jsonHex, 0}}),
	jsonKeyValue: {"key": {1, jsonString, 0}, "value": {2, jsonMessage, jsonAny}},
	jsonAny: camelAndSnake(map[string]jsonField{
		"string_value": {1, jsonString, 0}, "bool_value": {2, jsonBool, 0},
		"int_value": {3, jsonInt64, 0}, "double_value": {4, jsonDouble, 0},
		"array_value":  {5, jsonMessage, jsonArray},
		"kvlist_value": {6, jsonMessage, jsonKeyValueList}, "bytes_value": {7, jsonBytes, 0}}),
	jsonArray:        {"values": {1, jsonMessages, jsonAny}},
	jsonKeyValueList: {"values": {1, jsonMessages, jsonKeyValue}},

	jsonTraceRequest: camelAndSnake(map[string]jsonField{
		"resource_spans": {1, jsonMessages, jsonResourceSpans}}),
	jsonResourceSpans: camelAndSnake(map[string]jsonField{
		"resource": {1, jsonMessage, jsonResource}, "scope_spans": {2, jsonMessages, jsonScopeSpans},
		"schema_url": {3, jsonString, 0}}),
	jsonScopeSpans: camelAndSnake(map[string]jsonField{
		"scope": {1, jsonMessage, jsonScope}, "spans": {2, jsonMessages, jsonSpan}, "schema_url": {3, jsonString, 0}}),
	jsonSpan: camelAndSnake(map[string]jsonField{
		"trace_id": {1, jsonHex, 0}, "span_id": {2, jsonHex, 0}, "trace_state": {3, jsonString, 0},
		"parent_span_id": {4, jsonHex, 0}, "name": {5, jsonString, 0}, "kind": {6, jsonSpanKind, 0},
		"start_time_unix_nano": {7, jsonTime, 0}, "end_time_unix_nano": {8, jsonTime, 0},
		"attributes": {9, jsonMessages, jsonKeyValue}, "dropped_attributes_count": {10, jsonUint32, 0},
		"events": {11, jsonMessages, jsonSpanEvent}, "dropped_events_count": {12, jsonUint32, 0},
		"links": {13, jsonMessages, jsonSpanLink}, "dropped_links_count": {14, jsonUint32, 0},
		"status": {15, jsonMessage, jsonStatus}, "flags": {16, jsonFixed4, 0}}),
	jsonSpanEvent: camelAndSnake(map[string]jsonField{
		"time_unix_nano": {1, jsonTime, 0}, "name": {2, jsonString, 0},
		"attributes": {3, jsonMessages, jsonKeyValue}, "dropped_attributes_count": {4, jsonUint32, 0}}),
	jsonSpanLink: camelAndSnake(map[string]jsonField{
		"trace_id": {1, jsonHex, 0}, "span_id": {2, jsonHex, 0}, "trace_state": {3, jsonString, 0},
		"attributes": {4, jsonMessages, jsonKeyValue}, "dropped_attributes_count": {5, jsonUint32, 0},
		"flags": {6, jsonFixed4, 0}}),
	jsonStatus: {"message": {2, jsonString, 0}, "code": {3, jsonStatusCode, 0}},

	jsonLogsRequest: camelAndSnake(map[string]jsonField{
		"resource_logs": {1, jsonMessages, jsonResourceLogs}}),
	jsonResourceLogs: camelAndSnake(map[string]jsonField{
		"resource": {1, jsonMessage, jsonResource}, "scope_logs": {2, jsonMessages, jsonScopeLogs},
		"schema_url": {3, jsonString, 0}}),
	jsonScopeLogs: camelAndSnake(map[string]jsonField{
		"scope": {1, jsonMessage, jsonScope}, "log_records": {2, jsonMessages, jsonLogRecord}, "schema_url": {3, jsonString, 0}}),
	jsonLogRecord: camelAndSnake(map[string]jsonField{
		"time_unix_nano": {1, jsonTime, 0}, "severity_number": {2, jsonSeverity, 0}, "severity_text": {3, jsonString, 0},
		"body": {5, jsonMessage, jsonAny}, "attributes": {6, jsonMessages, jsonKeyValue},
		"dropped_attributes_count": {7, jsonUint32, 0}, "flags": {8, jsonFixed4, 0},
		"trace_id": {9, jsonHex, 0}, "span_id": {10, jsonHex, 0},
		"observed_time_unix_nano": {11, jsonTime, 0}, "event_name": {12, jsonString, 0}}),
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
