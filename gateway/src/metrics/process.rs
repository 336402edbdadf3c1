//! The process as the kernel sees it, in the names that Prometheus clients share.

use std::fs;

/// The kernel reports processor time in this unit on every architecture that we run on (`USER_HZ`).
const TICKS_A_SECOND: f64 = 100.0;

/// A reading; what cannot be had is `None` and not reported.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
    pub(super) threads: Option<u64>,
}

impl Process {
    /// Reads `/proc`; nothing where there is none.
    pub(super) fn read() -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        let status = read("status");
        Self {
            cpu_seconds: cpu_seconds(&read("stat")),
            resident_bytes: kib(&status, "VmRSS:"),
            virtual_bytes: kib(&status, "VmSize:"),
            threads: word(&status, "Threads:", 0),
            open_fds: fs::read_dir("/proc/self/fd")
                .ok()
                .and_then(|fds| u64::try_from(fds.count()).ok()),
            max_fds: word(&read("limits"), "Max open files", 0),
        }
    }
}

/// The number that is word `at` behind the line's title.
fn word(text: &str, title: &str, at: usize) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(title))?;
    line.split_ascii_whitespace().nth(at)?.parse().ok()
}

fn kib(text: &str, title: &str) -> Option<u64> {
    word(text, title, 0)?.checked_mul(1024)
}

/// User and system time, fields 14 and 15 (proc(5)). The second field is the program's name, which may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11).map(str::parse::<u32>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    Some((f64::from(user) + f64::from(system)) / TICKS_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_kernel() {
        let stat = "17 (a) b c) S 1 17 17 0 -1 4194560 9 0 0 0 123 77 0 0 20 0 4 0 5 6 7";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds(""), None);
        let status = "Name:\tgateway\nVmSize:\t    2048 kB\nVmRSS:\t     4 kB\nThreads:\t3\n";
        assert_eq!(
            (kib(status, "VmSize:"), kib(status, "VmRSS:")),
            (Some(2 << 20), Some(4096))
        );
        assert_eq!(word(status, "Threads:", 0), Some(3));
        let limits = "Max open files            1024                 524288               files\n";
        assert_eq!(word(limits, "Max open files", 0), Some(1024));
        assert_eq!(
            word("Max open files unlimited unlimited files", "Max open files", 0),
            None
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process() {
        let process = Process::read();
        assert!(process.resident_bytes.unwrap() > 100_000);
        assert!(process.virtual_bytes.unwrap() >= process.resident_bytes.unwrap());
        assert!(process.open_fds.unwrap() >= 3 && process.threads.unwrap() >= 1);
        assert!(process.cpu_seconds.is_some() && process.max_fds.is_some());
    }
}
