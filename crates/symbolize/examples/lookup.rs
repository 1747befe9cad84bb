//! Resolves addresses of an ELF file as for a recording, and prints the cost.
//!
//! `lookup FILE COUNT` spreads COUNT addresses over the file's code; `lookup FILE 0xADDR…` prints
//! the names and lines at virtual addresses; without arguments it spreads 1000 over its own code.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use wallscope_binfmt::elf::Elf;
use wallscope_binfmt::mapped::MappedFile;
use wallscope_model::{Frame, FrameKind, Module, ModuleId, ModuleKind, Recording};
use wallscope_procfs::target_file::open_named_by_user;
use wallscope_symbolize::{ModuleSource, Sources, resolve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: lookup FILE COUNT | lookup FILE 0xADDR…";
    let path = args.next().unwrap_or_else(|| "/proc/self/exe".into());
    let mut rest: Vec<String> = args.collect();
    if path == "/proc/self/exe" && rest.is_empty() {
        rest.push("1000".into());
    }
    let first = rest.first().ok_or(usage)?;
    let (offsets, print) = if first.starts_with("0x") {
        let map = MappedFile::map(&open_named_by_user(Path::new(&path))?)?;
        let elf = Elf::parse(&map)?;
        let mut offsets = Vec::new();
        for address in &rest {
            let vaddr = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
            offsets.push(elf.offset_of_vaddr(vaddr).ok_or("not in the file")?);
        }
        (offsets, true)
    } else {
        (spread(&path, first.parse()?)?, false)
    };
    let mut recording = Recording {
        modules: vec![Module {
            kind: ModuleKind::Elf,
            path: path.as_str().into(),
            build_id: Arc::default(),
            pid: 0,
        }],
        ..Recording::default()
    };
    recording.frames = offsets
        .iter()
        .map(|offset| Frame {
            kind: FrameKind::Native,
            module: Some(ModuleId(0)),
            address: *offset,
            lines: Vec::new(),
        })
        .collect();
    let mut sources = Sources::default();
    sources
        .modules
        .insert(ModuleId(0), ModuleSource::from_file(File::open(&path)?, 0));
    let begin = Instant::now();
    let losses = resolve(&mut recording, sources);
    let took = begin.elapsed();
    if print {
        for frame in &recording.frames {
            for line in &frame.lines {
                let function = &recording.functions[line.function.0 as usize];
                println!("{} {}:{}", function.name, function.file, line.line);
            }
            println!();
        }
    }
    let named = recording.frames.iter().filter(|f| !f.lines.is_empty());
    let inlined = recording.frames.iter().filter(|f| f.lines.len() > 1);
    println!(
        "{} of {} addresses named, {} with inlined functions, {} functions, in {took:.2?}",
        named.count(),
        recording.frames.len(),
        inlined.count(),
        recording.functions.len(),
    );
    for loss in losses {
        println!("  {}: {}", loss.cause, loss.count);
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    for line in status
        .lines()
        .filter(|l| l.starts_with("VmHWM") || l.starts_with("RssAnon"))
    {
        println!("{line}");
    }
    Ok(())
}

/// File offsets of `count` addresses over all code, not ascending.
fn spread(path: &str, count: u64) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let map = MappedFile::map(&open_named_by_user(Path::new(path))?)?;
    let elf = Elf::parse(&map)?;
    let sections = elf.code_sections();
    let total: u64 = sections.iter().map(|s| s.end - s.start).sum();
    let mut offsets = Vec::new();
    let mut state = 1u64;
    for _ in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mut at = (state >> 16) % total.max(1);
        for section in &sections {
            let size = section.end - section.start;
            if at < size {
                offsets.extend(elf.offset_of_vaddr(section.start + at));
                break;
            }
            at -= size;
        }
    }
    Ok(offsets)
}
