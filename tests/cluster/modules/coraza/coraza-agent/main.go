// A web application firewall: the Coraza engine behind SPOP 2.0.
//
//	coraza-agent -rules FILE [-listen 127.0.0.1:0]
//
// Prints the address once it listens. The rules may include @coraza.conf-recommended, @crs-setup.conf.example and
// @owasp_crs/*.conf.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"

	coreruleset "github.com/corazawaf/coraza-coreruleset/v4"
	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/types"
)

const (
	hello, disconnect, notify               = 1, 2, 3
	agentHello, agentDisconnect, ack        = 101, 102, 103
	mostBytes                               = 65532
	uint32Kind, int64Kind, textKind         = 3, 4, 8
	setVariable, arguments, transactionWide = 1, 3, 2
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	rules := flag.String("rules", "", "the file of directives")
	tell := flag.Bool("version", false, "print what it is built of")
	flag.Parse()
	if *tell {
		info, _ := debug.ReadBuildInfo()
		for _, module := range info.Deps {
			fmt.Println(module.Path, module.Version)
		}
		return
	}
	directives, err := os.ReadFile(*rules)
	if err != nil {
		log.Fatal(err)
	}
	waf, err := coraza.NewWAF(coraza.NewWAFConfig().WithRootFS(coreruleset.FS).WithDirectives(string(directives)))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer connection.Close()
			if err := serve(waf, connection); err != nil && !errors.Is(err, io.EOF) {
				log.Print(err)
			}
		}()
	}
}

func serve(waf coraza.WAF, connection net.Conn) error {
	incoming := bufio.NewReader(connection)
	for {
		var length uint32
		if err := binary.Read(incoming, binary.BigEndian, &length); err != nil {
			return err
		}
		if length < 7 || length > mostBytes {
			return fmt.Errorf("a frame of %d bytes", length)
		}
		content := make([]byte, length)
		if _, err := io.ReadFull(incoming, content); err != nil {
			return err
		}
		frame := &reader{data: content[5:]}
		stream, number := frame.integer(), frame.integer()
		answer := func(kind byte, payload []byte) error {
			out := binary.BigEndian.AppendUint32(nil, 0)
			out = append(out, kind, 0, 0, 0, 1)
			out = append(appendInteger(appendInteger(out, stream), number), payload...)
			binary.BigEndian.PutUint32(out, uint32(len(out)-4))
			_, err := connection.Write(out)
			return err
		}
		switch content[0] {
		case hello:
			items, err := frame.items()
			if err != nil {
				return err
			}
			most, _ := items["max-frame-size"].(uint64)
			payload := append(appendPlain(nil, "version"), textKind)
			payload = appendPlain(payload, "2.0")
			payload = append(appendPlain(payload, "max-frame-size"), uint32Kind)
			payload = appendInteger(payload, min(most, mostBytes))
			payload = append(appendPlain(payload, "capabilities"), textKind)
			if err := answer(agentHello, appendPlain(payload, "")); err != nil {
				return err
			}
		case notify:
			request, err := frame.message()
			if err != nil {
				return err
			}
			actions, err := judge(waf, request)
			if err != nil {
				return err
			}
			if err := answer(ack, actions); err != nil {
				return err
			}
		case disconnect:
			payload := append(appendPlain(nil, "status-code"), uint32Kind, 0)
			return answer(agentDisconnect, payload)
		default:
			return fmt.Errorf("a frame of kind %d", content[0])
		}
	}
}

func judge(waf coraza.WAF, request map[string]any) ([]byte, error) {
	text := func(name string) string { value, _ := request[name].(string); return value }
	port := func(name string) int { value, _ := request[name].(uint64); return int(value) }
	address := func(name string) string { value, _ := request[name].(netip.Addr); return value.String() }
	if text("app") != "haproxy" {
		return nil, fmt.Errorf("no rules for %q", text("app"))
	}
	transaction := waf.NewTransaction()
	defer transaction.Close()
	defer transaction.ProcessLogging()
	actions := set(nil, "id", textKind, transaction.ID())
	transaction.ProcessConnection(address("src-ip"), port("src-port"), address("dst-ip"), port("dst-port"))
	transaction.ProcessURI(text("path")+"?"+text("query"), text("method"), "HTTP/"+text("version"))
	for line := range strings.Lines(text("headers")) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			transaction.AddRequestHeader(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	if found := transaction.ProcessRequestHeaders(); found != nil {
		return reject(actions, found), nil
	}
	if found, _, err := transaction.WriteRequestBody([]byte(text("body"))); found != nil || err != nil {
		return reject(actions, found), err
	}
	found, err := transaction.ProcessRequestBody()
	return reject(actions, found), err
}

func reject(actions []byte, found *types.Interruption) []byte {
	if found == nil {
		return actions
	}
	actions = set(actions, "status", int64Kind, uint64(found.Status))
	actions = set(actions, "action", textKind, found.Action)
	actions = set(actions, "data", textKind, found.Data)
	return set(actions, "ruleid", int64Kind, uint64(found.RuleID))
}

func set(out []byte, name string, kind byte, value any) []byte {
	out = append(out, setVariable, arguments, transactionWide)
	out = append(appendPlain(out, name), kind)
	if text, is := value.(string); is {
		return appendPlain(out, text)
	}
	return appendInteger(out, value.(uint64))
}

func appendPlain(out []byte, text string) []byte {
	return append(appendInteger(out, uint64(len(text))), text...)
}

func appendInteger(out []byte, value uint64) []byte {
	if value < 240 {
		return append(out, byte(value))
	}
	out = append(out, byte(value)|240)
	for value = (value - 240) >> 4; value >= 128; value = (value - 128) >> 7 {
		out = append(out, byte(value)|128)
	}
	return append(out, byte(value))
}

// A reader takes values off a frame; what ends too early yields zeros, and an error at the end.
type reader struct {
	data []byte
	bad  bool
}

func (from *reader) take(count uint64) []byte {
	if count > uint64(len(from.data)) {
		from.bad, from.data = true, nil
		return make([]byte, min(count, 16))
	}
	taken := from.data[:count]
	from.data = from.data[count:]
	return taken
}

func (from *reader) integer() uint64 {
	value := uint64(from.take(1)[0])
	if value < 240 {
		return value
	}
	for shift := 4; ; shift += 7 {
		next := uint64(from.take(1)[0])
		value += next << shift
		if next < 128 {
			return value
		}
	}
}

func (from *reader) plain() string { return string(from.take(from.integer())) }

func (from *reader) value() any {
	switch kind := from.take(1)[0] & 15; kind {
	case 0, 1:
		return nil
	case 2, 3, 4, 5:
		return from.integer()
	case 6, 7:
		address, _ := netip.AddrFromSlice(from.take(4 + 12*uint64(kind-6)))
		return address
	case 8, 9:
		return from.plain()
	default:
		from.bad = true
		return nil
	}
}

func (from *reader) items() (map[string]any, error) {
	found := map[string]any{}
	for len(from.data) > 0 {
		name := from.plain()
		found[name] = from.value()
	}
	if from.bad {
		return nil, errors.New("a frame that ends too early")
	}
	return found, nil
}

func (from *reader) message() (map[string]any, error) {
	if name := from.plain(); name != "coraza-req" {
		return nil, fmt.Errorf("no message is called %q", name)
	}
	from.take(1)
	return from.items()
}
