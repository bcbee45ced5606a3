package ingest

import (
	"cmp"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
)

// Identity is what the platform says of the actor that a workload channel
// serves: derived by whoever activates the channel, never by the actor (S2-3).
// An empty field is not known, and its attribute is then absent: a payload can
// set none of them.
type Identity struct {
	ActorUID          string `json:"actor_uid,omitempty"`
	ActorName         string `json:"actor_name,omitempty"`
	Atespace          string `json:"atespace,omitempty"` // the tenant
	TemplateNamespace string `json:"template_namespace,omitempty"`
	TemplateName      string `json:"template_name,omitempty"`
	Container         string `json:"container,omitempty"`
	PodName           string `json:"pod_name,omitempty"` // of the worker
	PodUID            string `json:"pod_uid,omitempty"`
	Node              string `json:"node,omitempty"`
	// ServiceName and ServiceNamespace replace what the payload says. Without a
	// name the payload's is kept, or defaulted to the template's where it is
	// absent or unknown_service; without a namespace there is none.
	ServiceName      string `json:"service_name,omitempty"`
	ServiceNamespace string `json:"service_namespace,omitempty"`
}

// Check refuses what could not be a label, and an identity that says nothing.
func (id *Identity) Check() error {
	if *id == (Identity{}) {
		return InKey("identity", "the identity is empty: say at least who the actor is")
	}
	for _, f := range []struct{ name, value string }{
		{"actor_uid", id.ActorUID}, {"actor_name", id.ActorName}, {"atespace", id.Atespace},
		{"template_namespace", id.TemplateNamespace}, {"template_name", id.TemplateName},
		{"container", id.Container}, {"pod_name", id.PodName}, {"pod_uid", id.PodUID}, {"node", id.Node},
		{"service_name", id.ServiceName}, {"service_namespace", id.ServiceNamespace},
	} {
		if why := unfit(f.value); why != fine || !validText(f.value) {
			return InKey("identity", "identity: %s: at most %d bytes of UTF-8 without control characters", f.name, maxLabelValue)
		}
	}
	return nil
}

// trusted is one attribute that a channel sets.
type trusted struct{ key, value string }

// attributeNames are the names of an identity's attributes below the prefix
// ("ate" unless configured otherwise, X14), one table (S2-30).
const (
	attrActorUID          = "actor.uid"
	attrActorName         = "actor.name"
	attrAtespace          = "actor.atespace"
	attrTemplateNamespace = "actor.template.namespace"
	attrTemplateName      = "actor.template.name"
	attrContainer         = "container.name"
	attrPlane             = "telemetry.plane"
	planeActor            = "actor"

	attrPodName = "k8s.pod.name"
	attrPodUID  = "k8s.pod.uid"
	attrNode    = "k8s.node.name"
)

// stamp is what a workload channel sets under one activation.
type stamp struct {
	prefix  string
	id      Identity
	channel string
	// metric are the resource attributes of its metrics, bounded whatever the
	// number of actors (S2-48 to S2-52); all are those of traces and logs.
	metric, all []trusted
	// base are the labels that metric gives each series, but for job, which
	// hangs on the payload's service.name; plane is target_info's own.
	base  []labels.Label
	plane labels.Label
	keys  reservedKeys
}

// writer is the one writer of a metric stream: the worker pod, never the actor
// (X3).
func (id *Identity) writer(channel string) string {
	switch {
	case id.PodUID != "":
		return id.PodUID
	case id.Node != "":
		return id.Node + "/" + channel
	}
	return channel
}

func newStamp(n *naming, prefix, channel string, id Identity) (*stamp, error) {
	prefix = cmp.Or(prefix, "ate")
	s := &stamp{prefix: prefix, id: id, channel: channel}
	set := func(list *[]trusted, key, value string) {
		if value != "" {
			*list = append(*list, trusted{key, value})
		}
	}
	both := func(key, value string) {
		set(&s.metric, key, value)
		set(&s.all, key, value)
	}
	both(prefix+"."+attrTemplateNamespace, id.TemplateNamespace)
	both(prefix+"."+attrTemplateName, id.TemplateName)
	both(prefix+"."+attrContainer, id.Container)
	both(prefix+"."+attrAtespace, id.Atespace)
	both(attrPodName, id.PodName)
	both(attrNode, id.Node)
	both(prefix+"."+attrPlane, planeActor)
	both(serviceNamespace, id.ServiceNamespace)
	set(&s.metric, serviceInstance, id.writer(channel))
	set(&s.all, serviceInstance, cmp.Or(id.ActorUID, id.writer(channel)))
	set(&s.all, attrPodUID, id.PodUID)
	set(&s.all, prefix+"."+attrActorUID, id.ActorUID)
	set(&s.all, prefix+"."+attrActorName, id.ActorName)
	var stated []string
	if id.ServiceName != "" {
		stated = append(stated, serviceName)
	}
	if id.Container != "" {
		stated = append(stated, containerName)
	}
	s.keys = newReserved(prefix, s.all, stated...)
	return s, s.label(n)
}

// label translates what becomes labels.
func (s *stamp) label(n *naming) error {
	for _, t := range s.metric {
		name, err := n.label.Build(t.key)
		if err != nil || len(name) > maxLabelName {
			return fmt.Errorf("identity: the attribute %s gives no label name", t.key)
		}
		switch t.key {
		case serviceNamespace: // in job
		case serviceInstance:
			s.base = append(s.base, labels.Label{Name: "instance", Value: t.value})
		case s.prefix + "." + attrPlane:
			s.plane = labels.Label{Name: name, Value: t.value}
		default:
			s.base = append(s.base, labels.Label{Name: name, Value: t.value})
		}
	}
	s.base = append(s.base, labels.Label{Name: channelLabel, Value: s.channel})
	return nil
}

// serviceName is the service.name under the channel, given the payload's, which
// is empty when it has none (S2-23).
func (s *stamp) serviceName(payload string) string {
	switch {
	case s.id.ServiceName != "":
		return s.id.ServiceName
	case payload != "" && !unknownService(payload):
		return payload
	}
	return cmp.Or(s.id.TemplateName, s.channel)
}
