// send.mjs KIND URL TEMPORALITY ROUNDS: one counter, one histogram and one
// gauge through one of the SDK's exporters, ROUNDS exports, then a shutdown,
// which sends the last state once more. What it counted is its last line.
import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
const { MeterProvider, PeriodicExportingMetricReader } = require('@opentelemetry/sdk-metrics');
const { resourceFromAttributes } = require('@opentelemetry/resources');

const [kind, url, temporality, rounds] = process.argv.slice(2);
const packages = { grpc: 'grpc', json: 'http', proto: 'proto' };
const { OTLPMetricExporter, AggregationTemporalityPreference } = {
  ...require('@opentelemetry/exporter-metrics-otlp-http'),
  ...require(`@opentelemetry/exporter-metrics-otlp-${packages[kind]}`),
};
const exporter = new OTLPMetricExporter({
  url, timeoutMillis: 20000,
  compression: kind === 'proto' ? 'gzip' : 'none',
  temporalityPreference: AggregationTemporalityPreference[temporality.toUpperCase()],
});
const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3600000 });
const provider = new MeterProvider({
  readers: [reader],
  resource: resourceFromAttributes({ 'service.name': `js-${kind}-${temporality}`, 'k8s.node.name': 'js-node' }),
});
const meter = provider.getMeter('wattloop-test');
const energy = meter.createCounter('hw.energy', { unit: 'J' });
const latency = meter.createHistogram('app.latency', { unit: 's', advice: { explicitBucketBoundaries: [0.1, 1] } });
const power = meter.createGauge('hw.power', { unit: 'W' });
let joules = 0;
for (let i = 1; i <= Number(rounds); i++) {
  energy.add(i * 10, { 'hw.id': 'cpu0', 'hw.type': 'cpu' });
  joules += i * 10;
  latency.record(0.5);
  power.record(100 + i, { 'hw.id': 'cpu0', 'hw.type': 'cpu' });
  await provider.forceFlush();
}
await provider.shutdown();
console.log(JSON.stringify({ joules, rounds: Number(rounds), watts: 100 + Number(rounds) }));
