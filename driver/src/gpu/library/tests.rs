//! Against small libraries made here by the C compiler: whole ones, and each with one thing wrong.

use std::path::Path;
use std::process::Command;

use super::*;

/// Makes a driver library in `folder` whose functions all answer 0, but for `own` (C code that begins with what it
/// defines) and without `lacking`.
pub(in crate::gpu) fn library(folder: &Path, own: &[(&str, &str)], lacking: Option<&str>) -> String {
    let mut code = String::new();
    for name in Symbols::NAMES.iter().filter(|name| Some(**name) != lacking) {
        match own.iter().find(|(named, _)| named == name) {
            Some((_, text)) => code.push_str(text),
            None if *name == "cuDriverGetVersion" => code.push_str(&version(13_000)),
            None => code.push_str(&format!("unsigned {name}(void) {{ return 0; }}\n")),
        }
    }
    let (source, made) = (folder.join("cuda.c"), folder.join("libcuda.so.1"));
    std::fs::write(&source, code).unwrap();
    let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&made).arg(&source).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    made.to_str().unwrap().to_owned()
}

fn version(version: u32) -> String {
    format!("unsigned cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}\n")
}

fn open(own: &[(&str, &str)], lacking: Option<&str>) -> Result<Cuda, LibraryError> {
    let folder = tempfile::tempdir().unwrap();
    Cuda::open(&[library(folder.path(), own, lacking)])
}

#[test]
fn a_whole_library_is_loaded() {
    let cuda =
        open(&[("cuDeviceGetCount", "unsigned cuDeviceGetCount(int *n) { *n = 3; return 0; }\n")], None).unwrap();
    assert_eq!((cuda.version(), cuda.device_count()), (CudaVersion(13_000), Ok(3)));
    assert_eq!(cuda.version().to_string(), "13.0");
    assert!(cuda.name().ends_with("libcuda.so.1"));
}

#[test]
fn each_symbol_that_is_lacking_is_named() {
    for name in Symbols::NAMES {
        match open(&[], Some(name)) {
            Err(LibraryError::Symbol { symbol, library }) => {
                assert_eq!(symbol, *name);
                assert!(library.ends_with("libcuda.so.1"));
            }
            other => panic!("without {name}: {other:?}"),
        }
    }
}

#[test]
fn no_library_names_what_was_tried() {
    let tried = vec!["/nowhere/libcuda.so.1".to_owned(), "/nowhere/libcuda.so".to_owned()];
    let error = Cuda::open(&tried).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("/nowhere/libcuda.so.1, /nowhere/libcuda.so"), "{message}");
    assert!(message.contains("No such file") && message.contains("LD_LIBRARY_PATH"), "{message}");
    let many = (0..9).map(|number| format!("/nowhere/{number}.so")).collect::<Vec<_>>();
    let message = Cuda::open(&many).unwrap_err().to_string();
    assert!(message.contains("none of /nowhere/0.so, /nowhere/1.so, and 7 more could be loaded"), "{message}");
    assert!(Cuda::open(&[]).unwrap_err().to_string().contains("no name to try"));
}

#[test]
fn a_file_that_is_no_library_is_told_rather_than_one_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    std::fs::write(&path, "not a library").unwrap();
    let names = ["/nowhere/a.so".to_owned(), path.to_str().unwrap().to_owned(), "/nowhere/b.so".to_owned()];
    match Cuda::open(&names) {
        Err(LibraryError::Missing { tried, reason }) => {
            assert_eq!(tried, names);
            assert!(reason.contains("libcuda.so.1") && !reason.contains("No such file"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_old_driver_says_what_it_has_and_what_is_needed() {
    let old = version(11_080);
    let error = open(&[("cuDriverGetVersion", &old)], None).unwrap_err();
    assert_eq!(error, LibraryError::DriverTooOld { have: CudaVersion(11_080), need: OLDEST });
    assert_eq!(error.to_string(), "the driver has CUDA 11.8, and this needs 12.0: install a newer driver");
    let negative = "unsigned cuDriverGetVersion(int *version) { *version = -1; return 0; }\n";
    let error = open(&[("cuDriverGetVersion", negative)], None).unwrap_err();
    assert_eq!(error, LibraryError::DriverTooOld { have: CudaVersion(0), need: OLDEST });
}

#[test]
fn what_initialisation_answers_is_told_apart() {
    let init = |code: u32| {
        let text = format!("unsigned cuInit(unsigned flags) {{ return {code}; }}\n");
        let name = "unsigned cuGetErrorName(unsigned code, const char **name) { *name = code == 999 ? 0 : \"NAMED\"; \
                    return 0; }\n";
        open(&[("cuInit", &text), ("cuGetErrorName", name)], None).unwrap_err()
    };
    assert_eq!(init(code::NO_DEVICE), LibraryError::NoDevice);
    assert!(matches!(init(code::STUB_LIBRARY), LibraryError::Stub { .. }));
    for refused in [code::NOT_PERMITTED, code::OPERATING_SYSTEM] {
        assert!(init(refused).to_string().contains("/dev/nvidia*"));
    }
    let error = CudaError { call: "cuInit", code: 803, name: "NAMED".to_owned() };
    assert_eq!(init(803), LibraryError::Call(error));
    // A code that no header here knows, and that CUDA has no name for.
    assert_eq!(init(999).to_string(), "cuInit: an error without a name (CUDA error 999)");
    assert!(init(0xFFFF_FFFF).to_string().contains("4294967295"));
}

#[test]
fn the_drivers_own_name_is_tried_first() {
    let names = candidates();
    assert_eq!(names[0], "libcuda.so.1");
    assert_eq!(names.iter().filter(|name| *name == "libcuda.so.1").count(), 1);
    assert!(names.contains(&"libcuda.so".to_owned()));
}
