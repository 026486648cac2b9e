//! A cgroup's limit on hugepages is a reported fall-back to ordinary pages, never a signal.
//!
//! A program of its own, as it puts itself under the limit. It needs root, the hugetlb controller of cgroup v2 and
//! eight free hugepages of 2 MiB, and says so where they are missing.

use std::fs;
use std::path::PathBuf;

use tentpeg_driver::dma::{HostMemory, PageSize};

const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// A cgroup that is removed when the test is over.
struct Cgroup {
    parent: PathBuf,
    path: PathBuf,
}

impl Cgroup {
    /// A cgroup with this process in it, which may use `bytes` of hugepages; the reason where none can be had.
    fn with_limit(bytes: u64) -> Result<Self, String> {
        let free: u64 = fs::read_to_string(FREE).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        if free < 8 {
            return Err(format!("{free} hugepages of 2 MiB are free, 8 are needed"));
        }
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        let controllers = |root: &PathBuf| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let Some(parent) =
            roots.into_iter().find(|root| controllers(root).split_whitespace().any(|name| name == "hugetlb"))
        else {
            return Err("no cgroup v2 with the hugetlb controller".to_owned());
        };
        let path = parent.join(format!("tentpeg-hugetlb-{}", std::process::id()));
        let set_up = || -> std::io::Result<()> {
            fs::write(parent.join("cgroup.subtree_control"), "+hugetlb")?;
            fs::create_dir(&path)?;
            fs::write(path.join("hugetlb.2MB.max"), bytes.to_string())?;
            fs::write(path.join("cgroup.procs"), std::process::id().to_string())
        };
        set_up().map_err(|error| format!("no cgroup can be made: {error}"))?;
        Ok(Self { parent, path })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn a_limit_of_the_cgroup_is_a_fall_back() {
    let _cgroup = match Cgroup::with_limit(4 << 20) {
        Ok(cgroup) => cgroup,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    let small = HostMemory::allocate(2 << 20).unwrap();
    assert_eq!(small.pages().size, PageSize::Huge2MiB, "{}", small.pages());
    let large = HostMemory::allocate(12 << 20).unwrap();
    assert_eq!(large.pages().size, PageSize::Ordinary);
    let reason = large.pages().fall_back.as_deref().unwrap();
    assert!(reason.contains("cgroup's limit"), "{reason}");
}
