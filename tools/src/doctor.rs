//! `tentpeg doctor`: whether this machine can drive controllers from userspace, and what to do where it cannot.
//!
//! Each check is one line: good, a warning (it works, but not as well as it could), or bad (it does not work), with the
//! reason and the remedy. All is read from sysfs and procfs; nothing is changed and no device is touched. Where there is a
//! GPU it is asked through CUDA, and ways to its memory are tried with some of it.

mod gpu;

use std::fs;
use std::os::unix::fs::MetadataExt;

use clap::Args;
use serde::Serialize;
use tentpeg_driver::bus::{Openers, PciFunction, Sysfs, VFIO_DRIVER};
use tentpeg_driver::vfio::{self, Way};

use crate::bind::take_from;
use crate::list::{State, columns};
use crate::units::About;

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Print a JSON array of one object for each check instead of a table
    #[arg(long)]
    pub json: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// It works, but not as well as it could.
    Warning,
    /// It does not work.
    Bad,
}

/// A check with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it ended.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn good(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Level::Good, found: found.into(), remedy: None }
    }

    fn warning(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, remedy: Some(remedy.into()), ..Self::good(check, found) }
    }

    fn bad(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Bad, ..Self::warning(check, found, remedy) }
    }

    fn cells(&self) -> [String; 3] {
        let level = match self.level {
            Level::Good => "good",
            Level::Warning => "warning",
            Level::Bad => "BAD",
        };
        let remedy = self.remedy.as_ref().map(|remedy| format!(": {remedy}")).unwrap_or_default();
        [level.to_owned(), self.check.clone(), format!("{}{remedy}", self.found)]
    }
}

/// What the checks found, as text, and the worst of it.
///
/// A machine on which nothing can be read has bad lines and is no error.
pub fn run(sysfs: &Sysfs, args: &DoctorArgs) -> (String, Level) {
    let findings = findings(sysfs);
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Good);
    let text = if args.json {
        serde_json::to_string(&findings).expect("texts always serialise") + "\n"
    } else {
        columns(&findings.iter().map(Finding::cells).collect::<Vec<_>>())
    };
    (text, worst)
}

/// Every check, in the order in which one rests on another.
pub fn findings(sysfs: &Sysfs) -> Vec<Finding> {
    let machine = Examined { sysfs, user: User::read(sysfs) };
    let mut findings = vec![machine.kernel(), machine.iommu(), machine.vfio()];
    findings.extend(machine.interrupts());
    findings.extend(machine.entry_limit());
    findings.extend([machine.locked_memory(), machine.hugepages()]);
    match sysfs.nvme_functions() {
        Err(error) => {
            findings.push(Finding::bad("drives", error.to_string(), "mount it by `mount -t sysfs sysfs /sys`"))
        }
        Ok(functions) if functions.is_empty() => {
            let remedy = "without one there is the controller in software: `tentpeg replay` runs on it";
            findings.push(Finding::warning("drives", "no NVMe controller on the PCI bus", remedy));
        }
        Ok(functions) => {
            let openers = sysfs.openers(functions.iter().flat_map(|function| &function.device_files));
            findings.extend(functions.iter().map(|function| machine.drive(function, &openers)));
        }
    }
    findings.extend(gpu::findings(sysfs));
    findings
}

/// The machine, and who asks.
struct Examined<'a> {
    sysfs: &'a Sysfs,
    user: User,
}

/// The user of this process.
struct User {
    uid: u32,
    groups: Vec<u32>,
    /// Whether memory may be locked without a limit (CAP_IPC_LOCK).
    locks_freely: bool,
}

/// CAP_IPC_LOCK among the effective capabilities.
const IPC_LOCK: u64 = 1 << 14;

impl User {
    fn read(sysfs: &Sysfs) -> Self {
        let status = fs::read_to_string(sysfs.path("/proc/self/status")).unwrap_or_default();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let numbers = |name| line(name).split_whitespace().filter_map(|number| number.parse().ok());
        let capabilities = u64::from_str_radix(line("CapEff:").trim(), 16).unwrap_or(0);
        // Of real, effective, saved and file system's user the second.
        let uid = numbers("Uid:").nth(1).unwrap_or(u32::MAX);
        let groups = numbers("Gid:").skip(1).take(1).chain(numbers("Groups:")).collect();
        Self { uid, groups, locks_freely: capabilities & IPC_LOCK != 0 }
    }
}

impl Examined<'_> {
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.sysfs.path(path)).ok().map(|text| text.trim().to_owned())
    }

    /// Linux 5.4 says which IOVAs can be used, 5.14 faults hugepages in without a signal.
    fn kernel(&self) -> Finding {
        let Some(release) = self.text("/proc/sys/kernel/osrelease") else {
            return Finding::bad("kernel", "its release cannot be read", "mount /proc");
        };
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let found = format!("Linux {release}");
        match version {
            _ if version < (5, 4) => {
                Finding::bad("kernel", found, "Linux 5.4 or newer says which addresses a device can use")
            }
            _ if version < (5, 14) => {
                Finding::warning("kernel", found, "with Linux 5.14 or newer hugepages can be used")
            }
            _ => Finding::good("kernel", found),
        }
    }

    fn iommu(&self) -> Finding {
        let count = |path| fs::read_dir(self.sysfs.path(path)).map_or(0, |entries| entries.flatten().count());
        let (groups, units) = (count("/sys/kernel/iommu_groups"), count("/sys/class/iommu"));
        match (groups, units) {
            (0, 0) => Finding::bad(
                "IOMMU",
                "none is switched on",
                "switch it on in the firmware (VT-d, AMD-Vi, SMMU) and, with an Intel processor, start the kernel with intel_iommu=on",
            ),
            (0, _) => Finding::bad("IOMMU", "it translates for no device", "start the kernel without iommu=off"),
            _ => Finding::good("IOMMU", format!("{groups} groups")),
        }
    }

    fn vfio(&self) -> Finding {
        let there = |path: &str| self.sysfs.path(path).exists();
        if !there(&format!("/sys/bus/pci/drivers/{VFIO_DRIVER}")) {
            return Finding::bad("VFIO", "the driver vfio-pci is not loaded", "load it by `modprobe vfio-pci`");
        }
        match vfio::ways(self.sysfs)[..] {
            [] if there("/sys/module/vfio_iommu_type1") => {
                let remedy = "in a container, pass it in (`--device /dev/vfio`)";
                Finding::bad("VFIO", "there is no /dev/vfio/vfio", remedy)
            }
            [] => {
                let remedy = "load it by `modprobe vfio_iommu_type1`";
                Finding::bad("VFIO", "the module vfio_iommu_type1 is not loaded", remedy)
            }
            ref ways => {
                let ways: Vec<_> = ways.iter().map(Way::to_string).collect();
                Finding::good("VFIO", format!("{VFIO_DRIVER} with {}", ways.join(" and ")))
            }
        }
    }

    fn interrupts(&self) -> Option<Finding> {
        let forged = |module: &str| {
            let option = self.text(&format!("/sys/module/{module}/parameters/allow_unsafe_interrupts"));
            option.is_some_and(|option| option == "Y")
        };
        ["vfio_iommu_type1", "iommufd"].into_iter().any(forged).then(|| {
            Finding::warning(
                "interrupts",
                "the kernel lets devices forge interrupts (allow_unsafe_interrupts)",
                "switch interrupt remapping on in the firmware and the option off",
            )
        })
    }

    /// Mappings are few and large here: the default is plenty.
    fn entry_limit(&self) -> Option<Finding> {
        const PLENTY: u32 = 1024;
        let text = self.text("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit")?;
        let limit: u32 = text.parse().ok()?;
        Some(if limit < PLENTY {
            let found = format!("at most {limit} pieces of memory");
            Finding::warning("mappings", found, "raise dma_entry_limit of the module vfio_iommu_type1 (65535 is usual)")
        } else {
            Finding::good("mappings", format!("at most {limit} pieces of memory"))
        })
    }

    fn locked_memory(&self) -> Finding {
        const CHECK: &str = "locked memory";
        const LITTLE: u64 = 64 << 20;
        if self.user.locks_freely {
            return Finding::good(CHECK, "without limit (CAP_IPC_LOCK)");
        }
        let limits = self.text("/proc/self/limits").unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")).unwrap_or_default();
        match line.split_whitespace().next() {
            Some("unlimited") => Finding::good(CHECK, "without limit"),
            limit => {
                let Some(bytes) = limit.and_then(|limit| limit.parse::<u64>().ok()) else {
                    return Finding::bad(CHECK, "the limit cannot be read", "mount /proc");
                };
                let found = format!("devices can reach {} of this user's memory at the most", About(bytes));
                let remedy = "raise it by `ulimit -l`, by LimitMEMLOCK= of a service, or in /etc/security/limits.conf";
                if bytes < LITTLE { Finding::bad(CHECK, found, remedy) } else { Finding::warning(CHECK, found, remedy) }
            }
        }
    }

    fn hugepages(&self) -> Finding {
        let number = |name: &str| {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
            self.text(&path).and_then(|text| text.parse::<u64>().ok())
        };
        match (number("nr_hugepages"), number("free_hugepages")) {
            (None, _) => Finding::warning("hugepages", "this kernel has none of 2 MiB", "ordinary pages are used"),
            (Some(0), _) => Finding::warning(
                "hugepages",
                "none",
                "ordinary pages are used; `sysctl vm.nr_hugepages=1024` sets 2 GiB aside",
            ),
            (Some(all), free) => {
                let free = free.unwrap_or(0);
                let found = format!("{free} of {all} of 2 MiB are free");
                if free > 0 {
                    Finding::good("hugepages", found)
                } else {
                    let remedy = "raise vm.nr_hugepages, or end who holds them";
                    Finding::warning("hugepages", found, remedy)
                }
            }
        }
    }

    /// A controller. One that the kernel uses is no fault of the machine.
    fn drive(&self, function: &PciFunction, openers: &Openers) -> Finding {
        let check = function.address.to_string();
        let state = State::of(self.sysfs, function, openers);
        let text = state.text();
        match state {
            State::Ready => self.permission(function).unwrap_or_else(|| Finding::good(&check, "ready")),
            State::Bindable => {
                let remedy = format!("give it to VFIO by `tentpeg bind {check}`");
                let whose = function.driver.as_ref().map_or("with no driver", |_| "with the kernel");
                Finding::warning(&check, format!("{whose}, and free"), remedy)
            }
            State::OtherDriver(driver) => Finding::warning(&check, text, take_from(function.address, &driver)),
            State::InUse(_) | State::BootDisk(_) => Finding::good(&check, format!("left to the kernel, {text}")),
            State::NoIommu => Finding::bad(&check, text, "see IOMMU"),
            State::NotViable(_) => {
                let remedy = "bind or unbind the other devices, or move it to a slot with a group of its own";
                Finding::bad(&check, text, remedy)
            }
        }
    }

    /// What keeps this user from a controller that is ready.
    fn permission(&self, function: &PciFunction) -> Option<Finding> {
        let way = vfio::probe(self.sysfs, &[function.address]);
        let files = vfio::files(self.sysfs, function, way);
        files.iter().find_map(|path| {
            // That the one for all is not there is said of VFIO.
            let there = self.sysfs.path(path).exists() || path == files.last().unwrap_or(path);
            there.then(|| self.permission_for(function, path)).flatten()
        })
    }

    fn permission_for(&self, function: &PciFunction, path: &str) -> Option<Finding> {
        let check = function.address.to_string();
        let Ok(file) = fs::metadata(self.sysfs.path(path)) else {
            let remedy = "in a container, pass it in (`--device`)";
            return Some(Finding::bad(&check, format!("there is no {path}"), remedy));
        };
        let User { uid, groups, .. } = &self.user;
        // Read and write, for owner, group and all others.
        let bits = match () {
            () if *uid == file.uid() => 0o600,
            () if groups.contains(&file.gid()) => 0o060,
            () => 0o006,
        };
        let may = *uid == 0 || file.mode() & bits == bits;
        (!may).then(|| {
            let found = format!("this user may not open {path}");
            Finding::bad(&check, found, format!("`chown {uid} {path}`, or run as root"))
        })
    }
}

#[cfg(test)]
mod tests;
