//! The table of formats: one row each, with the texts of help and menus.

use wallscope_model::scale::scale;

use crate::format::{Format, Reader};
use crate::{
    callgrind, firefox, folded, gprof, jfr, kernel_text, otlp, perf_data, perf_script, perfetto,
    pprof, pstats, speedscope, trace_event, v8,
};

impl Format {
    /// The format of that name.
    pub fn named(name: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|f| f.name == name)
    }

    /// The formats that can be written.
    pub fn written() -> impl Iterator<Item = &'static Format> {
        FORMATS.iter().filter(|f| f.write.is_some())
    }

    /// The formats that can be read.
    pub fn read() -> impl Iterator<Item = &'static Format> {
        FORMATS.iter().filter(|f| f.read.is_some())
    }
}

/// Every format. For reading they are tried in this order.
pub const FORMATS: &[Format] = &[
    // Before pprof: the first letters of a big-endian machine's file could pass as pprof.
    Format {
        name: "perf.data",
        about: "",
        reads: "perf.data: clocks, hardware events, sched_switch; copied stacks are unwound",
        binary: true,
        one_view: false,
        read: Some(Reader {
            detect: perf_data::detect,
            read: perf_data::read,
        }),
        write: None,
    },
    // Before pprof: its fields of the same numbers hold no messages of messages.
    Format {
        name: "otlp",
        about: "OpenTelemetry's profiles (alpha), all states: for collectors",
        reads: "OpenTelemetry's profiles (alpha)",
        binary: true,
        one_view: false,
        read: Some(Reader {
            detect: otlp::detect,
            read: otlp::read,
        }),
        write: Some(otlp::write),
    },
    Format {
        name: "pprof",
        about: "gzip pprof with everything wallscope knows: for go tool pprof, speedscope, Pyroscope",
        reads: "wallscope's own files; pprof of any tool: time, memory, counts",
        binary: true,
        one_view: false,
        read: Some(Reader {
            detect: pprof::detect,
            read: pprof::read,
        }),
        write: Some(|rec, _, out| {
            pprof::write(rec, &scale(rec), out)?;
            Ok(Vec::new())
        }),
    },
    Format {
        name: "speedscope",
        about: "speedscope's JSON: one view, a profile a thread",
        reads: "speedscope's JSON (py-spy, rbspy and others write it)",
        binary: false,
        one_view: true,
        read: Some(Reader {
            detect: speedscope::detect,
            read: speedscope::read,
        }),
        write: Some(speedscope::write),
    },
    Format {
        name: "firefox",
        about: "the Firefox Profiler's JSON: all states on the threads' timelines",
        reads: "processed profiles of the Firefox Profiler (samply writes them)",
        binary: false,
        one_view: false,
        read: Some(Reader {
            detect: firefox::detect,
            read: firefox::read,
        }),
        write: Some(firefox::write),
    },
    Format {
        name: "cpuprofile",
        about: "",
        reads: "V8's .cpuprofile and .heapprofile (node --cpu-prof, Chrome)",
        binary: false,
        one_view: false,
        read: Some(Reader {
            detect: v8::detect,
            read: v8::read,
        }),
        write: None,
    },
    Format {
        name: "chrome-trace",
        about: "",
        reads: "Chrome's trace events, with V8's CPU profiles in them (DevTools)",
        binary: false,
        one_view: false,
        read: Some(Reader {
            detect: trace_event::detect,
            read: trace_event::read,
        }),
        write: None,
    },
    Format {
        name: "jfr",
        about: "",
        reads: "Java flight recordings, the JDK's and async-profiler's",
        binary: true,
        one_view: false,
        read: Some(Reader {
            detect: jfr::detect,
            read: jfr::read,
        }),
        write: None,
    },
    Format {
        name: "perf-script",
        about: "",
        reads: "the text of perf script: clocks, hardware events, sched_switch",
        binary: false,
        one_view: false,
        read: Some(Reader {
            detect: perf_script::detect,
            read: perf_script::read,
        }),
        write: None,
    },
    Format {
        name: "perfetto",
        about: "Perfetto's trace: one view, samples on threads over time, for ui.perfetto.dev",
        reads: "",
        binary: true,
        one_view: true,
        read: None,
        write: Some(perfetto::write),
    },
    Format {
        name: "callgrind",
        about: "callgrind's format: one view, functions and calls, for KCachegrind",
        reads: "callgrind's files",
        binary: false,
        one_view: true,
        read: Some(Reader {
            detect: callgrind::detect,
            read: callgrind::read,
        }),
        write: Some(callgrind::write),
    },
    Format {
        name: "gprof",
        about: "",
        reads: "the text of gprof",
        binary: false,
        one_view: false,
        read: Some(Reader {
            detect: gprof::detect,
            read: gprof::read,
        }),
        write: None,
    },
    Format {
        name: "pstats",
        about: "",
        reads: "profiles of Python (python -m cProfile -o)",
        binary: true,
        one_view: false,
        read: Some(Reader {
            detect: pstats::detect,
            read: pstats::read,
        }),
        write: None,
    },
    Format {
        name: "bpf-text",
        about: "",
        reads: "stacks that bpftrace and bcc's tools print",
        binary: false,
        one_view: false,
        read: Some(Reader {
            detect: kernel_text::detect,
            read: kernel_text::read,
        }),
        write: None,
    },
    Format {
        name: "folded",
        about: "one line a stack: for flame graph scripts, grep and diff",
        reads: "folded stacks of stackcollapse, inferno, py-spy (raw), offcputime -f, austin",
        binary: false,
        one_view: true,
        read: Some(Reader {
            detect: folded::detect,
            read: folded::read,
        }),
        write: Some(|rec, options, out| {
            folded::write(rec, &options.folded, out)?;
            Ok(Vec::new())
        }),
    },
];
