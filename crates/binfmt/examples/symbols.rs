//! Prints the identity of an ELF file and its largest functions; without a file, its own:
//! `cargo run -p wallscope-binfmt --example symbols -- FILE`

use std::error::Error;
use std::fs::File;

use wallscope_binfmt::elf::{Elf, Symbol, SymbolTable};
use wallscope_binfmt::mapped::MappedFile;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1);
    let path = path.unwrap_or_else(|| "/proc/self/exe".into());
    let map = MappedFile::map(&File::open(&path)?)?;
    let elf = Elf::parse(&map)?;
    let id = elf.build_id();
    println!("{path}: build id {}", id.as_deref().unwrap_or("none"));
    let table = match elf.has_static_symbols() {
        true => SymbolTable::Static,
        false => SymbolTable::Dynamic,
    };
    let mut functions: Vec<Symbol<'_>> = elf.symbols(table).filter(|s| s.function).collect();
    functions.sort_by_key(|s| std::cmp::Reverse(s.size));
    for s in functions.iter().take(10) {
        let name = String::from_utf8_lossy(s.name);
        println!("{:>8} bytes at {:#x}  {name}", s.size, s.address);
    }
    println!(
        "{} functions, {} PLT stubs",
        functions.len(),
        elf.plt_entries().len()
    );
    Ok(())
}
