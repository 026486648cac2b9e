//! `docs/errors.md` names every error of the driver and the engine, and none that there is not.

use std::collections::BTreeSet;
use std::path::Path;

use tentpeg_tests::architecture::House;

/// The public error types of a source text, as `Type` for a struct and `Type::Variant` for an enum.
fn errors_of(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with("#[derive(") || !line.trim_end_matches(")]").ends_with("Error") {
            continue;
        }
        // Attributes, which may go over several lines, until the item.
        let item =
            lines.by_ref().find(|line| ["pub ", "pub(", "enum ", "struct "].iter().any(|kind| line.starts_with(kind)));
        let Some((kind, rest)) = item.and_then(|item| item.strip_prefix("pub ")).and_then(|item| item.split_once(' '))
        else {
            continue;
        };
        let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if kind == "struct" {
            found.insert(name.to_owned());
            continue;
        }
        for line in lines.by_ref().take_while(|line| *line != "}") {
            let variant = line.strip_prefix("    ").unwrap_or_default();
            if variant.starts_with(char::is_uppercase) {
                let variant = variant.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                found.insert(format!("{name}::{variant}"));
            }
        }
    }
    found
}

/// What the catalogue names: the text between backquotes in the first column of its tables.
fn catalogued(text: &str) -> BTreeSet<String> {
    let first =
        |line: &str| line.strip_prefix("| ").and_then(|row| row.split_once(" | ")).map(|(first, _)| first.to_owned());
    let cells: Vec<String> = text.lines().filter_map(first).collect();
    cells
        .iter()
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| name.starts_with(char::is_uppercase))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_catalogue_of_errors_is_whole() {
    let house = House::read().unwrap();
    let files = house.files.iter().filter(|file| !file.exempt);
    let files = files.filter(|file| file.path.starts_with("driver/src") || file.path.starts_with("engine/src"));
    let code: BTreeSet<_> = files.flat_map(|file| errors_of(&file.text)).collect();
    assert!(code.len() > 100, "only {} errors were found in the code", code.len());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md");
    let page = catalogued(&std::fs::read_to_string(page).unwrap());
    let missing: Vec<_> = code.difference(&page).collect();
    let gone: Vec<_> = page.difference(&code).collect();
    assert!(missing.is_empty(), "docs/errors.md does not name {missing:#?}");
    assert!(gone.is_empty(), "docs/errors.md names what the code does not have: {gone:#?}");
}

#[test]
fn errors_are_found_in_a_text() {
    let text = "#[derive(Debug, Error)]\n#[error(\n    \"x\"\n)]\npub struct A;\n#[derive(Debug, Error)]\npub enum B {\n    /// c\n    #[error(\"c\")]\n    C {\n        d: u8,\n    },\n    E(u8),\n}\n#[derive(Debug, thiserror::Error)]\npub(crate) enum F {\n    G,\n}\n#[derive(Debug, Error)]\nenum J {\n    K,\n}\npub struct L;\n#[derive(Debug)]\npub enum H {\n    I,\n}\n";
    assert_eq!(errors_of(text), ["A", "B::C", "B::E"].map(str::to_owned).into());
    let page = "| error | meaning |\n| --- | --- |\n| `A::B`, `C` | `D` |\n| `x` | |\n";
    assert_eq!(catalogued(page), ["A::B", "C"].map(str::to_owned).into());
}
