// Package suite runs the conformance tests of the Gateway API and tells what came of each, a line of JSON per test.
package suite

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

var (
	outcomesPath = flag.String("outcomes", "", "file that gets a line of JSON for each test that ended")
	only         = flag.String("only", "", "comma-separated patterns of the tests to run, with all features that these need")
)

type outcome struct {
	Test        string                 `json:"test"`
	Features    []features.FeatureName `json:"features"`
	Provisional bool                   `json:"provisional"`
	Outcome     string                 `json:"outcome"`
}

func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	if *only != "" {
		require.NoError(t, choose(t.Context(), &options, strings.Split(*only, ",")))
	}
	if *outcomesPath != "" {
		file, err := os.Create(*outcomesPath)
		require.NoError(t, err)
		t.Cleanup(func() { _ = file.Close() })
		options.Hook = teller(file)
	}
	conformance.RunConformanceWithOptions(t, options)
}

// choose leaves out all tests but those that a pattern names, and declares what these need beside what is declared.
func choose(ctx context.Context, options *suite.ConformanceOptions, patterns []string) error {
	if len(options.SupportedFeatures) == 0 {
		// Once something is declared here, the suite no longer looks there.
		var class gatewayv1.GatewayClass
		if err := options.Client.Get(ctx, types.NamespacedName{Name: options.GatewayClassName}, &class); err != nil {
			return err
		}
		for _, feature := range class.Status.SupportedFeatures {
			options.SupportedFeatures = append(options.SupportedFeatures, features.FeatureName(feature.Name))
		}
	}
	for _, pattern := range patterns {
		matches := 0
		for _, test := range tests.ConformanceTests {
			if matched, err := path.Match(pattern, test.ShortName); err != nil {
				return err
			} else if matched {
				matches++
				options.SupportedFeatures = append(options.SupportedFeatures, test.Features...)
			}
		}
		if matches == 0 {
			return fmt.Errorf("no test is called %s", pattern)
		}
	}
	for _, test := range tests.ConformanceTests {
		if !slices.ContainsFunc(patterns, func(pattern string) bool {
			matched, _ := path.Match(pattern, test.ShortName)
			return matched
		}) {
			options.SkipTests = append(options.SkipTests, test.ShortName)
		}
	}
	return nil
}

// teller returns what is called after each test; several tests may end at the same time.
func teller(file *os.File) func(*testing.T, suite.ConformanceTest, *suite.ConformanceTestSuite) {
	var lock sync.Mutex
	return func(t *testing.T, test suite.ConformanceTest, running *suite.ConformanceTestSuite) {
		if running.SkipTests.Has(test.ShortName) {
			return
		}
		told := outcome{Test: test.ShortName, Features: test.Features, Provisional: test.Provisional, Outcome: "passed"}
		if t.Failed() {
			told.Outcome = "failed"
		} else if t.Skipped() {
			told.Outcome = "skipped"
		}
		lock.Lock()
		defer lock.Unlock()
		if err := json.NewEncoder(file).Encode(told); err != nil {
			t.Errorf("the outcome cannot be written: %v", err)
		}
	}
}
