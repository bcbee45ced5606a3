package pull

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

const nodePlace = "{node}"

// CheckEndpoint says why a text is no endpoint: an http or https URL without
// credentials, in which {node} stands for a node's name.
func CheckEndpoint(text string) error {
	u, err := url.Parse(expand(text, "node"))
	switch {
	case strings.Contains(text, "@") && (err != nil || u.User != nil):
		return errors.New("an endpoint has no credentials in it: they would show; put them as basic_auth into the file that pull.http names")
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%.200q is no endpoint; write it like http://127.0.0.1:18080/otlp/telemetry/{node}", text)
	case strings.Contains(u.Host, nodePlace), u.Fragment != "":
		return fmt.Errorf("%.200q: {node} stands in the path or the query, and there is no fragment", text)
	}
	return nil
}

// expand puts the node in its places, as a path or a query must have it.
func expand(endpoint, node string) string {
	path, query, asks := strings.Cut(endpoint, "?")
	path = strings.ReplaceAll(path, nodePlace, url.PathEscape(node))
	if asks {
		path += "?" + strings.ReplaceAll(query, nodePlace, url.QueryEscape(node))
	}
	return path
}
