package pull

import (
	"net/http"
	"time"

	"github.com/wattloop/wattloop/internal/fetch"
)

// MaxAnswer is the longest answer that is read, in bytes once inflated (S0-51).
const MaxAnswer = 8 << 20

// newPage is the document of one endpoint for one node, asked as a file says.
func newPage(address, file, agent string, timeout time.Duration) *fetch.Page {
	return &fetch.Page{
		URL: address, Timeout: timeout, Limit: MaxAnswer, Any2xx: true,
		Header: http.Header{"Accept": {"application/json"}, "User-Agent": {agent}},
		Client: fetch.ClientOf(file, nil),
	}
}
