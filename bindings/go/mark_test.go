package tompion

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tompion/tompion/bindings/go/internal/filter"
)

// The cases are those of crates/schema/src/format.rs.
func TestArgumentsOfMarksGetTheirNames(t *testing.T) {
	for format, expected := range map[string]string{
		"rows %d table %s": "rows, table",
		"rows=%d":          "rows",
		"rows: %d (of %u), name='%s', at [%d:%d]": "rows, of, name, at, arg5",
		"%d rows, %d":                     "arg1, arg2",
		"%dms %d":                         "arg1, arg2",
		"100%% done %d, 100%%d":           "done",
		"a.b %d 2nd %d ü %d é_x %d":       "b, arg2, arg3, _x",
		"at 0x%lx, p %p, n %#hhX":         "at, p, n",
		"n %d n %d n_2 %d n %d":           "n, n_2, n_2_2, n_3",
		"arg2 %d x %d arg %d":             "arg1, x, arg",
		"took %*d of %2$d, %m then %w64d": "arg1, took, then",
		"":                                "",
	} {
		count := len(strings.Split(expected, ", "))
		if expected == "" {
			count = 0
		}
		fields := make([]filter.Field, count)
		for i := range fields {
			fields[i].Name = fmt.Sprintf("arg%d", i+1)
		}
		nameArguments(format, fields)
		var names []string
		for _, field := range fields {
			names = append(names, field.Name)
		}
		if found := strings.Join(names, ", "); found != expected {
			t.Errorf("%s: expected %s, found %s", format, expected, found)
		}
	}
}
