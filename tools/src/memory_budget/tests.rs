use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const GIB: u64 = 1 << 30;

/// A machine with 8 GiB available and these files.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let meminfo = "MemTotal:       16000000 kB\nMemFree:         100 kB\nMemAvailable:    8388608 kB\nBuffers: 1 kB\n";
    for (path, text) in [("proc/meminfo", meminfo)].iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn available(files: &[(&str, &str)]) -> Available {
    Available::under(machine(files).path()).unwrap()
}

fn by_cgroup(bytes: u64, directory: &str) -> Available {
    Available { bytes, bound: Bound::Cgroup(directory.into()) }
}

fn by_machine() -> Available {
    Available { bytes: 8 * GIB, bound: Bound::MemAvailable }
}

const V2_MOUNT: (&str, &str) = (
    "proc/self/mountinfo",
    "24 1 0:22 / / rw - ext4 /dev/vda rw\n30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
);

#[test]
fn without_cgroups() {
    assert_eq!(available(&[]), by_machine());
    assert_eq!(available(&[("proc/self/cgroup", "0::/\n")]), by_machine());
}

#[test]
fn version_2_takes_the_tightest_level_and_counts_droppable_cache_as_free() {
    let cgroup = ("proc/self/cgroup", "0::/user.slice/job\n");
    let tree = |job_max, slice_max| {
        available(&[
            V2_MOUNT,
            cgroup,
            ("sys/fs/cgroup/user.slice/job/memory.max", job_max),
            ("sys/fs/cgroup/user.slice/job/memory.high", "max\n"),
            ("sys/fs/cgroup/user.slice/job/memory.current", "1073741824\n"),
            ("sys/fs/cgroup/user.slice/job/memory.stat", "anon 5\nfile 999\ninactive_file 536870912\nactive_file 7\n"),
            ("sys/fs/cgroup/user.slice/memory.max", slice_max),
            ("sys/fs/cgroup/user.slice/memory.current", "3221225472\n"),
        ])
    };
    assert_eq!(tree("2147483648\n", "max\n"), by_cgroup(3 * GIB / 2, "/sys/fs/cgroup/user.slice/job"));
    assert_eq!(tree("2147483648\n", "4294967296\n"), by_cgroup(GIB, "/sys/fs/cgroup/user.slice"));
    assert_eq!(tree("max\n", "max\n"), by_machine());
    assert_eq!(tree("1099511627776\n", "max\n"), by_machine());
    // More in use than the limit allows, as after a limit was lowered.
    assert_eq!(tree("max\n", "1073741824\n"), by_cgroup(0, "/sys/fs/cgroup/user.slice"));
}

#[test]
fn version_2_high_is_a_limit() {
    let files = [
        V2_MOUNT,
        ("proc/self/cgroup", "0::/job\n"),
        ("sys/fs/cgroup/job/memory.max", "max\n"),
        ("sys/fs/cgroup/job/memory.high", "1073741824\n"),
    ];
    assert_eq!(available(&files), by_cgroup(GIB, "/sys/fs/cgroup/job"));
}

#[test]
fn version_1_and_the_hybrid() {
    let mountinfo = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                     32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                     35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let tree = |job_limit, top_limit| {
        available(&[
            ("proc/self/mountinfo", mountinfo),
            ("proc/self/cgroup", "4:memory:/job\n1:cpu:/other\n0::/\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", job_limit),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 1073741824\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", top_limit),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n"),
        ])
    };
    let none = "9223372036854771712\n";
    assert_eq!(tree("2147483648\n", none), by_cgroup(2 * GIB, "/sys/fs/cgroup/memory/job"));
    assert_eq!(tree(none, "3221225472\n"), by_cgroup(GIB, "/sys/fs/cgroup/memory"));
    assert_eq!(tree(none, none), by_machine());
}

#[test]
fn no_limit_of_version_1_is_not_a_large_one() {
    let root = machine(&[
        ("proc/self/mountinfo", "35 31 0:32 / /cg rw - cgroup cgroup rw,memory\n"),
        ("proc/self/cgroup", "4:memory:/\n"),
        ("cg/memory.limit_in_bytes", "9223372036854710272\n"),
    ]);
    assert_eq!(cgroup::available(root.path()).unwrap(), [], "64 KiB pages");
}

#[test]
fn containers_show_part_of_the_hierarchy() {
    let limit = ("sys/fs/cgroup/memory.max", "1073741824\n");
    let mount = |top| format!("30 24 0:26 {top} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    let with = |top, cgroup, file| {
        let mountinfo = mount(top);
        available(&[("proc/self/mountinfo", &mountinfo), ("proc/self/cgroup", cgroup), file])
    };
    let at_top = by_cgroup(GIB, "/sys/fs/cgroup/");
    // The mount shows the container's own cgroup at its top.
    assert_eq!(with("/docker/abc", "0::/docker/abc\n", limit), at_top);
    // The path does not lie below what the mount shows.
    assert_eq!(with("/docker/abc", "0::/elsewhere\n", limit), at_top);
    // The process was moved out of its cgroup namespace.
    assert_eq!(with("/", "0::/../other\n", limit), at_top);
    // The cgroup is gone, or hidden; the one above is not.
    assert_eq!(with("/", "0::/gone\n", limit), at_top);
    let below = ("sys/fs/cgroup/worker/memory.max", "1073741824\n");
    assert_eq!(with("/docker/abc", "0::/docker/abc/worker\n", below), by_cgroup(GIB, "/sys/fs/cgroup/worker"));
}

#[test]
fn files_that_are_wrong_are_named() {
    let root = tempfile::tempdir().unwrap();
    let message = Available::under(root.path()).unwrap_err().to_string();
    assert!(message.contains("proc/meminfo: "), "{message}");

    for meminfo in ["", "MemAvailable: x kB\n", "MemAvailable: 5\n", "MemAvailable: 18446744073709551615 kB\n"] {
        let root = machine(&[("proc/meminfo", meminfo)]);
        let message = Available::under(root.path()).unwrap_err().to_string();
        assert!(message.contains("proc/meminfo must have a line `MemAvailable"), "{meminfo:?}: {message}");
    }

    let root = machine(&[V2_MOUNT, ("proc/self/cgroup", "0::/job\n"), ("sys/fs/cgroup/job/memory.max", "lots\n")]);
    let message = Available::under(root.path()).unwrap_err().to_string();
    assert!(message.contains("job/memory.max must have a number of bytes or `max`"), "{message}");
}

#[test]
fn this_machine_has_memory() {
    let available = Available::now().unwrap();
    assert!(available.bytes > 0, "{available:?}");
    println!("{available:?}");
}

#[test]
fn too_much_is_refused_with_what_fits() {
    let two_gib = Available { bytes: 2 * GIB, bound: Bound::MemAvailable };
    assert_eq!(two_gib.usable(), 2 * GIB - GIB / 8);
    let need = Need { slots: 4_096, per_slot: 128 << 10, fixed: 64 << 20 };
    two_gib.check(&need).unwrap();
    let message = two_gib.check(&Need { slots: 16_384, ..need }).unwrap_err().to_string();
    assert_eq!(
        message,
        "16,384 slots and the pool need 2.06 GiB (2,214,592,512 B), but 1.88 GiB (2,013,265,920 B) can be used, by MemAvailable of /proc/meminfo: \
         give --slots 14848 or fewer"
    );
    let limited = by_cgroup(100 << 20, "/sys/fs/cgroup/job");
    let message = limited.check(&need).unwrap_err().to_string();
    assert_eq!(
        message,
        "one slot and the pool need 64.1 MiB (67,239,936 B), but 36.0 MiB (37,748,736 B) can be used, by the memory limit of the cgroup /sys/fs/cgroup/job: \
         give a smaller --pool or --block"
    );
    assert_eq!(by_cgroup(1 << 20, "/x").usable(), 0);
}

proptest! {
    /// The slots named are the most that fit, for any numbers.
    #[test]
    fn the_largest_that_fits_fits_and_one_more_does_not(
        bytes in any::<u64>(), slots in 1u64.., per_slot in any::<u64>(), fixed in any::<u64>(), shifts in any::<[u8; 4]>(),
    ) {
        let shifted = |number: u64, at: usize| number >> (shifts[at] % 64);
        let available = Available { bytes: shifted(bytes, 0), bound: Bound::MemAvailable };
        let need = Need { slots: shifted(slots, 1).max(1), per_slot: shifted(per_slot, 2), fixed: shifted(fixed, 3) };
        prop_assert!(available.usable() <= available.bytes);
        let fits = |slots| available.check(&Need { slots, ..need }).is_ok();
        match available.check(&need) {
            Ok(()) => prop_assert!(need.bytes() <= u128::from(available.usable())),
            Err(MemoryError::TooManySlots { largest, .. }) => {
                prop_assert!((1..need.slots).contains(&largest));
                prop_assert!(fits(largest) && !fits(largest + 1));
            }
            Err(MemoryError::NoRoom { .. }) => prop_assert!(!fits(1)),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
