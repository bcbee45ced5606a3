package ingest

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// resource is what a resource says of each of its points.
type resource struct {
	scopes level[scope]
	// base are the promoted labels, job and instance; a point cannot change them.
	base []labels.Label
	info *series // target_info, nil without one
	// bad refuses every point: the identity is ambiguous or unfit.
	bad      reason
	what     string
	messages int // in its bytes, itself included, for the bound on a request
}

// newResource decodes a resource that is not in the cache.
func (w *walk) newResource(b []byte) (resource, error) {
	n, err := check(msgResource, b, 3, "resource")
	if err != nil {
		return resource{}, err
	}
	r := resource{messages: n}
	attrs := w.stampResource(attributes(b, 1))
	byKey := make(map[string]string, len(attrs))
	for _, a := range attrs {
		if old, twice := byKey[a.key]; twice && w.naming.identity[a.key] && old != a.value {
			r.bad, r.what = labelCollision, "the resource has two values of "+a.key
		}
		if _, twice := byKey[a.key]; !twice {
			byKey[a.key] = a.value
		}
	}
	passedOn := w.passedOn(byKey)
	promoted := w.promoted()
	if passedOn {
		promoted = slices.Concat(promoted, w.boundedKeys())
	}
	for _, key := range promoted {
		i := slices.IndexFunc(attrs, func(a attribute) bool { return a.key == key })
		if i < 0 {
			continue
		}
		l, why := w.naming.translate(attrs[i])
		if why == fine && l.Name != "" && has(r.base, l.Name) {
			why = labelCollision
		}
		switch {
		case why != fine && r.bad == fine:
			r.bad, r.what = why, "the resource attribute "+key+" is unfit for a label"
		case why == fine && l.Name != "":
			r.base = append(r.base, l)
		}
	}
	if st := w.src.stamp; st != nil {
		for _, l := range st.base {
			r.addTarget(l.Name, l.Value)
		}
	}
	if passedOn {
		r.addTarget(channelLabel, w.src.channel.o.Name)
	}
	r.addTarget("job", job(byKey))
	r.addTarget("instance", byKey[serviceInstance])
	if r.bad == fine {
		w.targetInfo(&r, attrs)
	}
	return r, nil
}

// job is service.name, with service.namespace before it where there is one.
func job(attrs map[string]string) string {
	name, ok := attrs[serviceName]
	if space, both := attrs[serviceNamespace]; ok && both {
		return space + "/" + name
	}
	return name
}

// addTarget sets one of the two labels that name a target.
func (r *resource) addTarget(name, value string) {
	if value == "" {
		return
	}
	if why := unfit(value); why != fine {
		if r.bad == fine {
			r.bad, r.what = why, "what makes the label "+name+" of the resource is unfit for one"
		}
		return
	}
	for i := range r.base {
		if r.base[i].Name == name { // a promoted attribute called so gives way
			r.base[i].Value = value
			return
		}
	}
	r.base = append(r.base, labels.Label{Name: name, Value: value})
}

// promoted are the resource attributes that become labels: on a workload channel
// the one that the workload may say of itself (S2-24).
func (w *walk) promoted() []string {
	if w.src.stamp != nil {
		return []string{containerName}
	}
	return w.o.Promote
}

// stampResource puts a workload's resource attributes in order: what names an
// identity goes, and the channel's own is set.
func (w *walk) stampResource(attrs []attribute) []attribute {
	st := w.src.stamp
	if st == nil {
		return attrs
	}
	attrs = st.strip(attrs)
	name := ""
	kept := attrs[:0]
	for _, a := range attrs {
		if a.key == serviceName {
			name = a.value
			continue
		}
		kept = append(kept, a)
	}
	kept = append(kept, attribute{serviceName, st.serviceName(name), true})
	for _, t := range st.metric {
		kept = append(kept, attribute{t.key, t.value, true})
	}
	return kept
}

// passedOn reports whether the resource of a node channel is an untrusted actor's,
// as another wattloop has marked it that passes it on. Whoever passes it on is
// trusted, what the actor says is not: its series carry the channel's name, as on
// a workload channel, so that no rule takes them for the node's own.
func (w *walk) passedOn(byKey map[string]string) bool {
	return w.src.stamp == nil && byKey[w.o.prefix()+"."+attrPlane] == planeActor
}

// boundedKeys are the attributes that a workload channel sets on metrics, as far
// as they become labels of their own.
func (w *walk) boundedKeys() []string {
	var keys []string
	for _, key := range []string{attrTemplateNamespace, attrTemplateName, attrContainer, attrAtespace} {
		keys = append(keys, w.o.prefix()+"."+key)
	}
	for _, key := range []string{attrPodName, attrNode, containerName} {
		if !slices.Contains(w.o.Promote, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
