//! The order of the house holds; and the checker that says so can say otherwise.

use tentpeg_tests::architecture::{CRATES, House, MOST_LINES, SourceFile, UNSAFE_FILES, check};

#[test]
fn every_file_keeps_to_the_order_of_rooms() {
    let house = House::read().unwrap();
    assert_eq!(house.unknown, [""; 0], "crates that are not in the list of crates");
    for (folder, _) in CRATES.iter().filter(|(folder, _)| *folder != "ffi") {
        let files = house.files.iter().filter(|file| file.path.starts_with(&format!("{folder}/src/")));
        assert!(files.count() > 1, "the files of {folder} were not found");
    }
    for listed in UNSAFE_FILES {
        assert!(house.files.iter().any(|file| file.path == *listed), "{listed} is listed and does not exist");
    }
    let (exempt, bound): (Vec<_>, Vec<_>) = house.files.iter().partition(|file| file.exempt);
    println!("{} files keep to the order; {} of tests are exempt:", bound.len(), exempt.len());
    for file in &exempt {
        println!("  {}", file.path);
    }
    assert!(bound.iter().all(|file| !file.path.ends_with("/tests.rs")), "a test module without #[cfg(test)]");
    let findings: Vec<_> = house.files.iter().flat_map(check).map(|finding| finding.to_string()).collect();
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

fn findings(path: &str, text: &str) -> Vec<String> {
    let file = SourceFile::new(path, text.to_owned()).unwrap();
    check(&file).iter().map(|finding| format!("{}: {}", finding.line, finding.wrong)).collect()
}

/// A small text that breaks a rule, in each way that a path can be written.
#[test]
fn each_rule_can_be_broken() {
    for (path, text, expected) in [
        // Upwards.
        ("driver/src/spec/x.rs", "use crate::dma::Iova;", "1: spec must not use dma"),
        ("driver/src/spec/x.rs", "\nuse crate::{\n  spec::A,\n  bus::{B},\n};", "4: spec must not use bus"),
        ("driver/src/dma/x.rs", "use crate::{dma::A, queue::{self as q}};", "1: dma must not use queue"),
        ("driver/src/dma/mod.rs", "use super::bus::Function;", "1: dma must not use bus"),
        ("driver/src/dma/a/b.rs", "use super::super::super::model::*;", "1: dma must not use model"),
        ("driver/src/bus/x.rs", "fn f() { let x = crate::controller::C::new(); }", "1: bus must not use controller"),
        ("driver/src/bus/x.rs", "fn f(a: &dyn Fn(crate::gpu::G)) {}", "1: bus must not use gpu"),
        ("driver/src/bus/x.rs", "mod inner { use super::super::super::model::M; }", "1: bus must not use model"),
        ("driver/src/bus/x.rs", "macro_rules! m { () => { $crate::queue::f() } }", "1: bus must not use queue"),
        ("driver/src/bus/x.rs", "assert!(matches!(x, crate::queue::A::B));", "1: bus must not use queue"),
        ("driver/src/bus/x.rs", "impl ::tentpeg_engine::T for X {}", "1: bus must not use tentpeg_engine"),
        ("driver/src/vfio/x.rs", "use crate::vfio_user::X;", "1: vfio must not use vfio_user"),
        ("driver/src/vfio/x.rs", "use tentpeg_engine::Engine;", "1: vfio must not use tentpeg_engine"),
        ("driver/src/queue/x.rs", "pub use crate::controller::Controller;", "1: queue must not use controller"),
        ("engine/src/lane.rs", "use tentpeg_tools::replay;", "1: tentpeg_engine must not use tentpeg_tools"),
        ("tools/src/main.rs", "use ::tentpeg_tests::x;", "1: tentpeg_tools must not use tentpeg_tests"),
        // The two sides of a command.
        ("driver/src/model/x.rs", "use crate::queue::Limits;", "1: model must not use queue"),
        ("driver/src/model/x.rs", "use crate::controller::Controller;", "1: model must not use controller"),
        ("driver/src/queue/x.rs", "use crate::model::Model;", "1: queue must not know model"),
        ("driver/src/controller/x.rs", "type M = crate::model::Model;", "1: controller must not know model"),
        // Ways around the order.
        ("driver/src/dma/x.rs", "use crate::*;", "1: crate::* names no room"),
        ("driver/src/dma/x.rs", "use crate as root;", "1: crate names no room"),
        ("driver/src/dma/x.rs", "use super::super as root;", "1: super::super names no room"),
        ("engine/src/x.rs", "use tentpeg_driver as d;", "1: tentpeg_driver names no room"),
        ("engine/src/x.rs", "use tentpeg_driver::{model::M, *};", "1: tentpeg_driver::* names no room"),
        ("driver/src/lib.rs", "use tentpeg_engine::Engine;", "1: the root of tentpeg_driver declares its rooms"),
        // Plain data.
        ("driver/src/spec/x.rs", "use std::fs::File;", "1: spec names std::fs::File"),
        ("driver/src/spec/x.rs", "use std::{fmt, io::{self}};", "1: spec names std::io"),
        ("driver/src/spec/x.rs", "fn f() { ::std::process::exit(1) }", "1: spec names std::process::exit"),
        ("driver/src/spec/x.rs", "fn f() { return ::std::process::exit(1) }", "1: spec names std::process::exit"),
        ("driver/src/spec/x.rs", "use std as s;", "1: spec names std:"),
        ("driver/src/spec/x.rs", "use libc;", "1: spec names libc"),
        ("driver/src/spec/x.rs", "fn f() { libc::getpid(); }", "1: spec names libc::getpid"),
        ("driver/src/spec/x.rs", "fn f() {\n unsafe { g() } }", "2: `unsafe` in spec"),
        // unsafe.
        ("driver/src/queue/x.rs", "\n\nunsafe impl Send for X {}", "3: `unsafe` in a file that is not on the list"),
        (
            "engine/src/x.rs",
            "#[cfg(test)] mod tests { fn f() { unsafe { g() } } }",
            "1: `unsafe` in a file that is not",
        ),
        ("driver/src/dma/view.rs", "fn f() {} // unsafe", "0: it is on the list of files with `unsafe` and has none"),
        ("tools/src/x.rs", "fn f() {", "0: not Rust"),
    ] {
        let found = findings(path, text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{path}: {text}: {found:?}");
    }
    let long = "\n".repeat(MOST_LINES + 1);
    assert_eq!(findings("tools/src/x.rs", &long), ["0: 701 lines: a file has 700 at the most"]);
}

#[test]
fn what_keeps_to_the_order_is_let_through() {
    for (path, text) in [
        ("driver/src/model/x.rs", "use crate::{bus::Function, dma::{self, Iova}, spec};"),
        ("driver/src/model/a/b.rs", "use super::super::config::C; use self::d::E; use super::f;"),
        ("driver/src/controller/x.rs", "use crate::queue::QueuePair; fn f() { Vec::<u8>::new(); }"),
        (
            "driver/src/queue/x.rs",
            "//! [`crate::controller`]\n/// `crate::model`\nconst TEXT: &str = \"crate::model\";",
        ),
        ("driver/src/queue/x.rs", "#[cfg(test)] mod tests { use crate::model::Model; }"),
        ("driver/src/queue/x.rs", "#[cfg(test)] use crate::model::{A, B}; use crate::dma::C;"),
        ("driver/src/queue/x.rs", "#[cfg(test)]\n#[allow(x)]\nfn f() { crate::model::f() }"),
        ("driver/src/spec/x.rs", "use std::fmt; use core::ops::Add; fn f() { x.io::<u8>(); }"),
        ("driver/src/lib.rs", "pub mod dma; pub use dma::Iova; pub use crate::queue::Limits;"),
        ("engine/src/x.rs", "use crate::lane::Lane; use tentpeg_driver::model::Model; use crate::OpCode;"),
        ("tools/src/main.rs", "use tentpeg_engine::*; use tentpeg_driver::spec::Sqe; use tentpeg_tools::units;"),
        ("driver/tests/x.rs", "use tentpeg_driver::*; use crate::anything;"),
        ("driver/src/dma/view.rs", "fn f() -> impl Sized + use<> { unsafe { g() } }"),
    ] {
        assert_eq!(findings(path, text), [""; 0], "{path}: {text}");
    }
    let after = "#[cfg(test)] mod tests; use crate::model::M;";
    assert_eq!(findings("driver/src/queue/x.rs", after).len(), 1, "only the item itself is exempt");
}
