package names

// hw.* are OpenTelemetry semantic conventions v1.44.0, hardware, which are in
// development there (S0-92). joulie.* are Joulie's own, with a dot where semantic
// conventions put one (decisions.md X15).
var metrics = []Metric{
	{"hw.energy", "J", Counter, "energy that a component has used",
		"hw_energy_joules_total", "hw_energy", "hw.energy_joules_total"},
	{"hw.power", "W", Gauge, "power that a component draws",
		"hw_power_watts", "hw_power", "hw.power_watts"},
	{"hw.temperature", "Cel", Gauge, "temperature of a component",
		"hw_temperature_celsius", "hw_temperature", "hw.temperature_celsius"},
	{"hw.cpu.speed", "Hz", Gauge, "clock of a CPU package",
		"hw_cpu_speed_hertz", "hw_cpu_speed", "hw.cpu.speed_hertz"},
	{"hw.host.energy", "J", Counter, "energy that the whole host has used",
		"hw_host_energy_joules_total", "hw_host_energy", "hw.host.energy_joules_total"},
	{"hw.host.power", "W", Gauge, "power that the whole host draws",
		"hw_host_power_watts", "hw_host_power", "hw.host.power_watts"},
	{"hw.host.ambient_temperature", "Cel", Gauge, "temperature of the air at the host's inlet",
		"hw_host_ambient_temperature_celsius", "hw_host_ambient_temperature", "hw.host.ambient_temperature_celsius"},
	{"joulie.facility.ambient_temperature", "Cel", Gauge, "outdoor temperature of the facility",
		"joulie_facility_ambient_temperature_celsius", "joulie_facility_ambient_temperature", "joulie.facility.ambient_temperature_celsius"},
	{"joulie.facility.it.energy", "J", Counter, "energy that the facility's machines have used",
		"joulie_facility_it_energy_joules_total", "joulie_facility_it_energy", "joulie.facility.it.energy_joules_total"},
	{"joulie.facility.it.power", "W", Gauge, "power that the facility's machines draw",
		"joulie_facility_it_power_watts", "joulie_facility_it_power", "joulie.facility.it.power_watts"},
	{"joulie.facility.cooling.energy", "J", Counter, "energy that the facility's cooling has used",
		"joulie_facility_cooling_energy_joules_total", "joulie_facility_cooling_energy", "joulie.facility.cooling.energy_joules_total"},
	{"joulie.facility.cooling.power", "W", Gauge, "power that the facility's cooling draws",
		"joulie_facility_cooling_power_watts", "joulie_facility_cooling_power", "joulie.facility.cooling.power_watts"},
	{"joulie.cooling_zone.ambient_temperature", "Cel", Gauge, "temperature of a cooling zone",
		"joulie_cooling_zone_ambient_temperature_celsius", "joulie_cooling_zone_ambient_temperature", "joulie.cooling_zone.ambient_temperature_celsius"},
	{"joulie.rack.energy", "J", Counter, "energy that a rack has used",
		"joulie_rack_energy_joules_total", "joulie_rack_energy", "joulie.rack.energy_joules_total"},
	{"joulie.rack.power", "W", Gauge, "power that a rack draws",
		"joulie_rack_power_watts", "joulie_rack_power", "joulie.rack.power_watts"},
}

var attributes = []Attribute{
	{"k8s.node.name", "the node; a resource attribute, promoted", "k8s_node_name"},
	{"host.name", "the host; a resource attribute, promoted", "host_name"},
	{"service.name", "the producer; it becomes the label job", "service_name"},
	{"service.namespace", "stands before service.name in the label job", "service_namespace"},
	{"service.instance.id", "one producer on one node; it becomes the label instance", "service_instance_id"},
	{"hw.type", "cpu, gpu, memory and others; a whole host has none", "hw_type"},
	{"hw.id", "the component: cpu<socket>, gpu<index>", "hw_id"},
	{"hw.parent", "the component that this one belongs to", "hw_parent"},
	{"joulie.cooling_zone.name", "as the node label joulie.io/cooling-zone", "joulie_cooling_zone_name"},
	{"joulie.rack.name", "as the node label joulie.io/rack", "joulie_rack_name"},
}
