package listen

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// namespaceVar says that this program is in a network namespace of its own.
const namespaceVar = "WATTLOOP_TEST_NAMESPACE"

// S2-6, S2-10, S2-11, S2-19, S2-20: the constant link-local address, gRPC on 4317 and
// HTTP on 4318 and each on the other, with the host that a client says by itself.
// It runs in a network namespace of its own, where the address can be had.
func TestConstantAddress(t *testing.T) {
	if os.Getenv(namespaceVar) == "" {
		ip, err := exec.LookPath("ip")
		if err != nil {
			t.Skip("needs ip (iproute2)")
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestConstantAddress$", "-test.v")
		cmd.Env = append(os.Environ(), namespaceVar+"="+ip)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if uid := os.Geteuid(); uid != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		switch {
		case bytes.Contains(out, []byte("--- SKIP")), err != nil && len(out) == 0:
			t.Skipf("no network namespace can be made here: %v", err)
		case err != nil:
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	ip := os.Getenv(namespaceVar)
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", "169.254.17.1/32", "dev", "lo"}} {
		if out, err := exec.Command(ip, args...).CombinedOutput(); err != nil {
			t.Skipf("ip %v: %v %s", args, err, out)
		}
	}
	b := newBed(t, nil)
	b.define("w1", "169.254.17.1:4317", "169.254.17.1:4318")
	b.activate("w1", "a")
	ctx := context.Background()
	for _, addr := range []string{"169.254.17.1:4317", "169.254.17.1:4318"} {
		if code, err := b.post(http.DefaultClient, "http://"+addr, 1); code != http.StatusOK {
			t.Errorf("HTTP at %s: %d, %v", addr, code, err)
		}
		call := func(want codes.Code, opts ...grpc.DialOption) {
			t.Helper()
			conn, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := pmetricotlp.NewGRPCClient(conn).Export(ctx, b.request(10)); status.Code(err) != want {
				t.Errorf("gRPC at %s: %v; want %v", addr, err, want)
			}
		}
		call(codes.OK)
		call(codes.PermissionDenied, grpc.WithAuthority("evil.example"))
		call(codes.OK, grpc.WithAuthority("169.254.17.2:4317")) // the same, translated
		for host, want := range map[string]int{"169.254.17.1": 200, "evil.example": 403, "169.254.17.1.evil.example": 403, "169.254.17.2:4317": 200} {
			req, err := http.NewRequest("POST", "http://"+addr+"/v1/metrics", bytes.NewReader(b.body(100)))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			req.Header.Set("Content-Type", "application/x-protobuf")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("HTTP at %s with Host %s: %s; want %d", addr, host, resp.Status, want)
			}
		}
	}
	if got := b.work("a"); got != 2*221 {
		t.Errorf("stored %g; want 442", got)
	}
}
