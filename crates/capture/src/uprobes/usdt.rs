//! Static probes (USDT, SystemTap's notes of version 3): where a program's author marked events.
//!
//! Each is a `nop` and a note with its address, provider and name. Some have a semaphore, a counter
//! that the kernel raises while the probe is in use.

use wallscope_binfmt::elf::Elf;

/// Kind of the notes.
const STAPSDT: u32 = 3;
/// Most probes that are read of a file.
const MAX_PROBES: usize = 1 << 16;

/// Place of a probe, as offsets in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePlace {
    /// The instruction.
    pub offset: u64,
    /// The semaphore, 0: none.
    pub semaphore: u64,
}

/// A static probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// As `postgresql`.
    pub provider: String,
    /// As `query__start`.
    pub name: String,
    /// Its place.
    pub place: ProbePlace,
}

/// All static probes of a file; a name may come several times.
pub fn probes(elf: &Elf<'_>) -> Vec<Probe> {
    let Some(notes) = elf.section(".note.stapsdt").ok().flatten() else {
        return Vec::new();
    };
    let base = elf.section_span(".stapsdt.base").map_or(0, |s| s.start);
    parse(&notes, base)
        .into_iter()
        .filter_map(|(provider, name, at, semaphore)| {
            Some(Probe {
                provider,
                name,
                place: ProbePlace {
                    offset: elf.offset_of_vaddr(at)?,
                    semaphore: match semaphore {
                        0 => 0,
                        at => elf.offset_of_vaddr(at)?,
                    },
                },
            })
        })
        .collect()
}

/// Provider, name, address and semaphore's address of each note, moved as the whole file was since it
/// was assembled (`base`: where its base section is now).
fn parse(notes: &[u8], base: u64) -> Vec<(String, String, u64, u64)> {
    let mut found = Vec::new();
    let mut rest = notes;
    while found.len() < MAX_PROBES {
        let word = |at: usize| {
            let bytes = rest.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (Some(name_size), Some(size), Some(kind)) = (word(0), word(4), word(8)) else {
            break;
        };
        let (name_size, size) = (name_size as usize, size as usize);
        let begin = 12 + name_size.next_multiple_of(4);
        let Some(desc) = rest.get(begin..begin.saturating_add(size)) else {
            break;
        };
        if kind == STAPSDT && rest.get(12..12 + name_size) == Some(b"stapsdt\0") {
            found.extend(note(desc, base));
        }
        let Some(next) = rest.get(begin + size.next_multiple_of(4)..) else {
            break;
        };
        rest = next;
    }
    found
}

fn note(desc: &[u8], base: u64) -> Option<(String, String, u64, u64)> {
    let word = |at: usize| {
        let bytes = desc.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (at, assembled, semaphore) = (word(0)?, word(8)?, word(16)?);
    let moved = if base == 0 {
        0
    } else {
        base.wrapping_sub(assembled)
    };
    let mut texts = desc.get(24..)?.split(|b| *b == 0);
    let mut text = || Some(String::from_utf8_lossy(texts.next()?).into_owned());
    let (provider, name) = (text()?, text()?);
    Some((
        provider,
        name,
        at.wrapping_add(moved),
        if semaphore == 0 {
            0
        } else {
            semaphore.wrapping_add(moved)
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(at: u64, base: u64, semaphore: u64) -> Vec<u8> {
        let mut desc = Vec::new();
        for word in [at, base, semaphore] {
            desc.extend(word.to_le_bytes());
        }
        desc.extend(b"prov\0name\0-4@%edi\0");
        let mut out = Vec::new();
        for word in [8u32, desc.len() as u32, 3] {
            out.extend(word.to_le_bytes());
        }
        out.extend(b"stapsdt\0");
        out.extend(&desc);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn notes_are_read_and_moved() {
        let notes = [bytes(0x1000, 0x2000, 0), bytes(0x1010, 0x2000, 0x3000)].concat();
        let found = parse(&notes, 0x2100);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], ("prov".into(), "name".into(), 0x1100, 0));
        assert_eq!((found[1].2, found[1].3), (0x1110, 0x3100));
    }

    #[test]
    fn damage_ends_quietly() {
        let notes = bytes(0x1000, 0x2000, 0);
        for cut in 0..notes.len() {
            assert!(parse(&notes[..cut], 0).len() <= 1);
        }
        assert!(parse(&[0xff; 64], 0).is_empty());
    }
}
