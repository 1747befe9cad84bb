//! Flags with which a runtime names the code that it makes at run time.
//!
//! The flag of the runtime in the process is shown, and only if such code was on a stack and nothing named
//! it.

use wallscope_model::Limit;

/// A runtime that makes code, and the way to get names of it.
pub struct JitRuntime {
    /// Prefixes of the names of its files.
    files: &'static [&'static str],
    /// Name for the user.
    name: &'static str,
    /// The way to get names of its code.
    remedy: &'static str,
}

/// Runtimes with a known way. The first one that fits counts.
const MAKERS: &[JitRuntime] = &[
    JitRuntime {
        files: &["libcoreclr.so"],
        name: ".NET",
        remedy: "start it with DOTNET_PerfMapEnabled=1 in its environment (2: jitdump only, 3: perf map only)",
    },
    JitRuntime {
        files: &["libruby", "ruby"],
        name: "Ruby",
        remedy: "ruby --yjit --yjit-perf (Ruby 3.3 and later)",
    },
    JitRuntime {
        files: &["opcache.so", "libphp", "php"],
        name: "PHP",
        remedy: "php -d opcache.jit_debug=0x10 (perf map), or 0x20 (jitdump)",
    },
    JitRuntime {
        files: &["beam.smp"],
        name: "Erlang's BEAM",
        remedy: "erl +JPperf true",
    },
    JitRuntime {
        files: &["libjulia"],
        name: "Julia",
        remedy: "ENABLE_JITPROFILING=1 julia, where it was built with it",
    },
    JitRuntime {
        files: &["wasmtime"],
        name: "wasmtime",
        remedy: "wasmtime run --profile=perfmap, or --profile=jitdump",
    },
    JitRuntime {
        files: &["libnode.so", "node", "electron", "chrome"],
        name: "V8",
        remedy: "node --perf-basic-prof --interpreted-frames-native-stack",
    },
    JitRuntime {
        files: &["libjvm.so"],
        name: "HotSpot",
        remedy: "jcmd PID Compiler.perfmap (what is compiled at that moment, without inlining)",
    },
    JitRuntime {
        files: &["libpypy", "pypy"],
        name: "PyPy",
        remedy: "nothing names code of its JIT; pypy3 --jit off runs without, in the interpreter's functions",
    },
    JitRuntime {
        files: &["libpython3", "python3"],
        name: "CPython",
        remedy: "python -X perf (3.12 and later), for its trampolines; nothing names code of its JIT",
    },
    JitRuntime {
        files: &["libluajit", "luajit"],
        name: "LuaJIT",
        remedy: "nothing in its usual builds; luajit -joff runs without such code, to see Lua's C functions",
    },
];

impl JitRuntime {
    /// Returns, for the user, the name of the runtime and the way to get names of its code.
    pub fn told(&self) -> (&'static str, &'static str) {
        (self.name, self.remedy)
    }

    /// Returns the runtime of a process with these files mapped.
    pub fn among<'p>(paths: impl Iterator<Item = &'p str> + Clone) -> Option<&'static JitRuntime> {
        let name = |path: &'p str| path.rsplit('/').next().unwrap_or(path);
        let fits = |m: &&JitRuntime| {
            let mut names = paths.clone().map(name);
            names.any(|n| m.files.iter().any(|f| n.starts_with(f)))
        };
        MAKERS.iter().find(fits)
    }
}

/// Limits for code that nothing named. `unnamed`: processes, and the number of addresses of such code on
/// their stacks. `maker`: the runtime that made it and the flag that makes it write names, if known.
pub fn unnamed_code(
    unnamed: Vec<(u32, u64)>,
    maker: impl Fn(u32) -> Option<(String, String)>,
) -> Vec<Limit> {
    let mut all: Vec<Limit> = unnamed
        .into_iter()
        .map(|(pid, addresses)| {
            let unknown = || ("a runtime that is not known".into(), String::new());
            let (name, remedy) = maker(pid).unwrap_or_else(unknown);
            Limit {
                what: format!(
                    "names of code that {name} made at run time in process {pid} ({addresses} addresses): \
                     it wrote no perf map or jitdump that tells them"
                ),
                remedy,
            }
        })
        .collect();
    all.sort_by(|a, b| a.what.cmp(&b.what));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_their_files() {
        let of = |paths: &[&str]| JitRuntime::among(paths.iter().copied()).map(|m| m.name);
        assert_eq!(of(&["/usr/bin/app", "/opt/libcoreclr.so"]), Some(".NET"));
        assert_eq!(of(&["/lib/libc.so.6", "/usr/bin/ruby3.1"]), Some("Ruby"));
        assert_eq!(of(&["/usr/bin/node"]), Some("V8"));
        assert_eq!(of(&["/usr/bin/app"]), None);
    }
}
