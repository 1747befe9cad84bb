//! Programs compiled for the tests, and lookups in them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use wallscope_binfmt::elf::Elf;
use wallscope_model::{Frame, FrameKind, Loss, Module, ModuleId, ModuleKind, Recording};
use wallscope_procfs::target_file::{Rights, TargetRoot};
use wallscope_symbolize::{ModuleSource, Sources, resolve};

/// Whether all of `tools` can be run; prints a missing one.
pub fn have(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| {
        Command::new(tool)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
    });
    if let Some(tool) = missing {
        println!("skipped: {tool} is not installed");
    }
    missing.is_none()
}

/// Runs a tool and returns its output.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes `text` to `dir/name` and compiles it with `compiler` and `flags` to `dir/output`.
pub fn compile(
    dir: &Path,
    compiler: &str,
    name: &str,
    text: &str,
    flags: &[&str],
    output: &str,
) -> PathBuf {
    let source = dir.join(name);
    std::fs::write(&source, text).unwrap();
    let output = dir.join(output);
    let mut args = vec![source.to_str().unwrap()];
    args.extend(flags);
    args.extend(["-o", output.to_str().unwrap()]);
    run(compiler, &args);
    output
}

/// Functions listed by `nm`: address, size, name.
pub fn functions(file: &Path) -> Vec<(u64, u64, String)> {
    run("nm", &["-S", "--defined-only", file.to_str().unwrap()])
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let size = u64::from_str_radix(fields.next()?, 16).ok()?;
            let kind = fields.next()?;
            let name = fields.next()?;
            "tTwW"
                .contains(kind)
                .then(|| (address, size, name.to_owned()))
        })
        .collect()
}

/// The address of the function `name`.
pub fn address_of(file: &Path, name: &str) -> u64 {
    functions(file)
        .into_iter()
        .find(|f| f.2 == name)
        .unwrap_or_else(|| panic!("no {name} in {}", file.display()))
        .0
}

/// A function at an address, in the form that the tests compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFunction {
    pub name: String,
    pub system_name: String,
    pub file: String,
    pub start_line: u32,
    pub line: u32,
}

/// This process's rights.
pub fn own_rights() -> Rights {
    Rights::of_process(std::process::id()).unwrap()
}

/// A lookup: a file seen as module `path`, by way of `sources`.
pub struct Lookup {
    pub path: String,
    pub build_id: String,
    pub sources: Sources,
}

impl Lookup {
    /// Creates a lookup in `file`, kept open, without debug directories.
    pub fn file(file: &Path) -> Lookup {
        let mut lookup = Lookup::path_only(file);
        let open = File::open(file).unwrap();
        lookup
            .sources
            .modules
            .insert(ModuleId(0), ModuleSource::from_file(open, 0));
        lookup
    }

    /// Creates a lookup that knows only the path.
    pub fn path_only(file: &Path) -> Lookup {
        Lookup {
            path: file.to_str().unwrap().to_owned(),
            build_id: String::new(),
            sources: Sources {
                root: Some(Arc::new(TargetRoot::of_host(own_rights()).unwrap())),
                debug_directories: Vec::new(),
                ..Sources::default()
            },
        }
    }

    /// Resolves the file offsets; returns the functions, innermost first, and the losses.
    pub fn offsets(self, offsets: &[u64]) -> (Vec<Vec<FoundFunction>>, Vec<Loss>) {
        let mut recording = Recording {
            modules: vec![Module {
                kind: ModuleKind::Elf,
                path: self.path.into(),
                build_id: self.build_id.into(),
                pid: 0,
            }],
            frames: offsets
                .iter()
                .map(|o| frame(FrameKind::Native, Some(0), *o))
                .collect(),
            ..Recording::default()
        };
        let losses = resolve(&mut recording, self.sources);
        (found(&recording), losses)
    }

    /// Resolves virtual addresses of `elf`.
    pub fn addresses(self, elf: &Path, addresses: &[u64]) -> (Vec<Vec<FoundFunction>>, Vec<Loss>) {
        let bytes = std::fs::read(elf).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        let offsets: Vec<u64> = addresses
            .iter()
            .map(|a| elf.offset_of_vaddr(*a).unwrap())
            .collect();
        self.offsets(&offsets)
    }
}

/// A frame without lines.
pub fn frame(kind: FrameKind, module: Option<u32>, address: u64) -> Frame {
    Frame {
        kind,
        module: module.map(ModuleId),
        address,
        lines: Vec::new(),
    }
}

/// The resolved lines of a recording's frames.
pub fn found(recording: &Recording) -> Vec<Vec<FoundFunction>> {
    let line = |l: &wallscope_model::Line| {
        let function = &recording.functions[l.function.0 as usize];
        FoundFunction {
            name: function.name.to_string(),
            system_name: function.system_name.to_string(),
            file: function.file.to_string(),
            start_line: function.start_line,
            line: l.line,
        }
    };
    recording
        .frames
        .iter()
        .map(|f| f.lines.iter().map(line).collect())
        .collect()
}

/// Names of one address's functions, innermost first.
pub fn names(found: &[FoundFunction]) -> Vec<&str> {
    found.iter().map(|f| f.name.as_str()).collect()
}
