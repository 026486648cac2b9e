//! The order towards a device, as it stands in the assembly: SQEs before their doorbell, the phase before the rest of a
//! CQE, CQEs before the doorbell that gives their places back, the shadow of
//! a doorbell before EventIdx. Rust's memory model has no devices in it, so loom cannot
//! show this; what the compiler has made of the driver's own files can.
//!
//! `tests/probes/ring.rs` is compiled by `rustc --emit asm` for each architecture whose standard library is installed;
//! the others are named as skipped. A compiler's fence is no instruction on x86-64, but LLVM notes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// An architecture: what rings and fences look like in its assembly.
struct Architecture {
    target: &'static str,
    /// The register of the first argument, memory, and of the second, the doorbell; as they stand in an operand.
    memory: &'static str,
    doorbell: &'static str,
    /// A fence's text, and the letter for it.
    fences: &'static [(&'static str, char)],
    /// What `probe_submit` and `probe_take` must do, and `probe_take`'s first load.
    submit: &'static str,
    take: &'static str,
    /// What `probe_publish` must do.
    publish: &'static str,
    phase: &'static [&'static str],
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture {
        target: "x86_64-unknown-linux-gnu",
        memory: "(%rdi)",
        doorbell: "(%rsi)",
        fences: &[("#MEMBARRIER", 'F'), ("mfence", 'f'), ("lock", 'f')],
        submit: "SFD",
        take: "LFLFD",
        publish: "SfL",
        phase: &["movl 12(%rdi),"],
    },
    Architecture {
        target: "aarch64-unknown-linux-gnu",
        memory: "[x0",
        doorbell: "[x1",
        fences: &[("dmb oshst", 's'), ("dmb oshld", 'l'), ("dmb osh", 'f')],
        submit: "SsD",
        take: "LlLfD",
        publish: "SfL",
        phase: &["ldar w", "ldapr w"],
    },
];

/// What a function does, in order: loads (L) and stores (S) of memory, rings of the doorbell (D) and fences; runs of the
/// same are one. And its first load.
fn events(architecture: &Architecture, lines: &[String]) -> (String, String) {
    let mut events = String::new();
    let mut first_load = String::new();
    for line in lines {
        let fence = architecture.fences.iter().find(|(text, _)| line.starts_with(text));
        let event = if let Some((_, letter)) = fence {
            *letter
        } else if line.starts_with("lea") {
            continue;
        } else if line.starts_with("ldar") || line.starts_with("ldapr") {
            'L'
        } else if line.contains(architecture.doorbell) {
            'D'
        } else if line.contains(architecture.memory) {
            // x86-64 names the destination last; AArch64 says it in the instruction.
            let stores = if line.starts_with("mov") { line.ends_with(')') } else { line.starts_with("st") };
            if stores { 'S' } else { 'L' }
        } else {
            continue;
        };
        if event == 'L' && first_load.is_empty() {
            first_load.clone_from(line);
        }
        if !events.ends_with(event) {
            events.push(event);
        }
    }
    (events, first_load)
}

/// Compiles the probes with these barriers. `None` where the target has no standard library.
fn compile(target: &str, barrier: &str) -> Option<BTreeMap<String, Vec<String>>> {
    let rustc = || Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
    let libraries = rustc().args(["--print", "target-libdir", "--target", target]).output().ok()?;
    let libraries = String::from_utf8(libraries.stdout).ok()?;
    fs::read_dir(libraries.trim()).ok()?.next()?.ok()?;

    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("../driver/src");
    let folder = tempfile::tempdir().unwrap();
    let read = |path: &str| fs::read_to_string(driver.join(path)).unwrap().replace("#[inline]", "#[inline(always)]");
    let ring = read("queue/ring.rs");
    assert!(ring.contains("Box<dyn Doorbell>"), "ring.rs has another kind of doorbell: the probes do not fit it");
    let ring = ring.replace("Box<dyn Doorbell>", "crate::bus::Register");
    let protocol = read("queue/shadow/protocol.rs").replace("#[cfg(test)]\nmod tests;\n", "");
    let probe = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("probes/ring.rs")).unwrap();
    let barrier = barrier.to_owned();
    for (name, text) in [
        ("ring.rs", ring),
        ("protocol.rs", protocol),
        ("view.rs", read("dma/view.rs")),
        ("barrier.rs", barrier),
        ("probe.rs", probe),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    for module in ["dma", "queue"] {
        fs::create_dir(folder.path().join(module)).unwrap();
    }
    let output = rustc()
        .current_dir(folder.path())
        .args([
            "--edition",
            "2024",
            "-Copt-level=3",
            "-Cpanic=abort",
            "--emit",
            "asm",
            "-o",
            "probe.s",
            "--target",
            target,
        ])
        .arg("probe.rs")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut functions = BTreeMap::<String, Vec<String>>::new();
    let mut current = None;
    for line in fs::read_to_string(folder.path().join("probe.s")).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match line.strip_suffix(':') {
            Some(label) if label.starts_with("probe_") => current = Some(label.to_owned()),
            _ if line.contains(".cfi_endproc") => current = None,
            _ => {}
        }
        if let Some(name) = &current {
            functions.entry(name.clone()).or_default().push(words.join(" "));
        }
    }
    Some(functions)
}

/// What is wrong with a pair of probes.
fn findings(architecture: &Architecture, functions: &BTreeMap<String, Vec<String>>, which: [&str; 2]) -> Vec<String> {
    let mut findings = Vec::new();
    let [submit, take] = which.map(|name| events(architecture, &functions[name]));
    if submit.0 != architecture.submit {
        findings.push(format!("{}: {} where {} is right", which[0], submit.0, architecture.submit));
    }
    if take.0 != architecture.take {
        findings.push(format!("{}: {} where {} is right", which[1], take.0, architecture.take));
    }
    let publish = events(architecture, &functions["probe_publish"]).0;
    if publish != architecture.publish {
        findings.push(format!("probe_publish: {publish} where {} is right", architecture.publish));
    }
    if !architecture.phase.iter().any(|phase| take.1.starts_with(phase)) {
        findings.push(format!("{}: the first load is {:?}, not the phase's", which[1], take.1));
    }
    findings
}

#[test]
fn orders_towards_a_device_stand_in_the_assembly() {
    let barrier = Path::new(env!("CARGO_MANIFEST_DIR")).join("../driver/src/dma/barrier.rs");
    let barrier = fs::read_to_string(barrier).unwrap();
    let mut read = 0;
    for architecture in &ARCHITECTURES {
        let target = architecture.target;
        let Some(functions) = compile(target, &barrier) else {
            println!("skipped: {target} has no standard library here (rustup target add {target})");
            continue;
        };
        read += 1;
        let right = ["probe_submit", "probe_take"];
        assert_eq!(findings(architecture, &functions, right), [""; 0], "{target}: {functions:#?}");

        // The controls: an order that is wrong, and each barrier left out, are found.
        let late = findings(architecture, &functions, ["probe_submit_late", "probe_take_early"]);
        assert!(late.len() >= 2, "{target}: a wrong order was not found: {late:?}");
        for name in ["stores_before_doorbell", "loads_after_phase", "loads_before_doorbell", "store_before_load"] {
            let without = without(&barrier, name);
            let functions = compile(target, &without).unwrap();
            let found = findings(architecture, &functions, right);
            assert!(!found.is_empty(), "{target}: {name} was left out, and nothing was found");
        }
    }
    assert!(read > 0, "no architecture could be looked at: is there no rustc?");
}

/// `barrier.rs` with one of its functions emptied.
fn without(barrier: &str, name: &str) -> String {
    let head = format!("pub fn {name}() {{\n");
    let start = barrier.find(&head).unwrap_or_else(|| panic!("no {name} in barrier.rs")) + head.len();
    let end = start + barrier[start..].find("\n}").unwrap();
    format!("{}{}", &barrier[..start], &barrier[end + 1..])
}
