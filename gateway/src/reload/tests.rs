//! Reloads, and the ways in which a file is changed.

use std::{fs, os::unix::fs::symlink, path::PathBuf, time::Duration};

use limiter_core::{
    Ask, MonotonicClock, OnFailure, Policy,
    algorithm::{Align, FixedWindow},
    test_util::Certificates,
};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::*;

struct Running {
    folder: TempDir,
    path: PathBuf,
    current: Arc<ArcSwap<Snapshot>>,
    reloader: Arc<Reloader>,
}

fn yaml(drain: &str) -> String {
    format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nserver: {{drain: {drain}}}\n")
}

/// A reloader of `FOLDER/gateway.yaml`, made by `lay_out`.
fn run(lay_out: impl FnOnce(&Path)) -> Running {
    let folder = TempDir::new().unwrap();
    lay_out(folder.path());
    let path = folder.path().join("gateway.yaml");
    let source = Source::new(&path, Overrides::default());
    let shared = Shared::new(Handle::current(), Handle::current());
    let Loaded { config, text } = source.load().unwrap();
    let current = Arc::new(ArcSwap::from_pointee(
        Snapshot::build(1, Arc::new(config), &shared).unwrap(),
    ));
    let clock = Arc::new(MonotonicClock::new());
    let reloader = Arc::new(Reloader::new(source, text, Arc::clone(&current), shared, clock));
    Running {
        folder,
        path,
        current,
        reloader,
    }
}

fn plain() -> Running {
    run(|folder| fs::write(folder.join("gateway.yaml"), yaml("1s")).unwrap())
}

impl Running {
    fn drain_secs(&self) -> u64 {
        self.current.load().config.server.drain.as_secs()
    }

    fn last(&self) -> LastReload {
        self.reloader.last_reload().unwrap()
    }

    async fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let wait = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Promised is 1 s; the rest is for a machine that is busy with other tests.
        tokio::time::timeout(Duration::from_secs(5), wait)
            .await
            .unwrap_or_else(|_| panic!("not in time: {what}"));
    }
}

#[tokio::test]
async fn says_how_it_ended() {
    let running = plain();
    assert!(running.reloader.last_reload().is_none());
    let reload = || running.reloader.reload(Trigger::Admin);

    assert!(matches!(reload(), ReloadOutcome::Unchanged));
    fs::write(&running.path, yaml("2s")).unwrap();
    assert!(matches!(reload(), ReloadOutcome::Applied { version: 2 }));
    assert_eq!((running.drain_secs(), running.current.load().version), (2, 2));
    assert_eq!(running.last().outcome, "applied");

    fs::write(&running.path, yaml("2")).unwrap();
    assert!(matches!(reload(), ReloadOutcome::Rejected(_)));
    assert!(
        running
            .last()
            .error
            .unwrap()
            .contains("gateway.yaml:3:17: server.drain: 2 has no unit")
    );

    let moved = yaml("3s")
        .replace("listen: 127.0.0.1:0", "listen: 127.0.0.1:1")
        .replace("drain", "workers: 3, drain");
    fs::write(&running.path, moved).unwrap();
    assert!(matches!(reload(), ReloadOutcome::RestartRequired { fields } if fields == ["listen", "server.workers"]));
    assert_eq!(running.last().error.unwrap(), "needs restart: listen, server.workers");
    assert_eq!(running.last().outcome, "restart_required");

    fs::write(&running.path, yaml("2s")).unwrap();
    assert!(matches!(reload(), ReloadOutcome::Unchanged), "back to what runs");
    assert_eq!(running.last().error, None);
    assert_eq!(running.current.load().version, 2);

    fs::remove_file(&running.path).unwrap();
    assert!(matches!(reload(), ReloadOutcome::Rejected(_)));
    assert_eq!(running.drain_secs(), 2);
}

#[tokio::test]
async fn a_changed_bound_of_the_memory_store_keeps_its_counters() {
    let bounded = |max_keys| format!("{}store: {{memory: {{max_keys: {max_keys}}}}}\n", yaml("1s"));
    let running = run(|folder| fs::write(folder.join("gateway.yaml"), bounded(100)).unwrap());
    let memory = || Arc::clone(running.current.load().store.memory().unwrap());
    let window = FixedWindow::new(5, Duration::from_secs(3_000), Align::FirstRequest).unwrap();
    let policy = Arc::new(Policy::new("user", window, OnFailure::Local));
    let take = |key: &str| {
        let ask = Ask {
            policy: &policy,
            key,
            cost: 1,
        };
        memory().decide_now(&[ask]).readings[0].remaining
    };
    assert_eq!(take("alice"), 4);

    fs::write(&running.path, bounded(50)).unwrap();
    assert!(matches!(
        running.reloader.reload(Trigger::Admin),
        ReloadOutcome::Applied { .. }
    ));
    assert_eq!(take("alice"), 3);
    for key in 0..80 {
        take(&key.to_string());
    }
    assert_eq!(memory().len(), 50);
}

#[tokio::test]
async fn a_file_change_is_told_once() {
    let running = plain();
    let told = || running.reloader.reload_if_changed().map(|outcome| outcome.kind());
    assert_eq!(told(), None, "nothing changed");
    fs::write(&running.path, "limits: [").unwrap();
    assert_eq!(told(), Some(ReloadKind::Rejected));
    assert_eq!(told(), None, "still the same mistake");
    fs::remove_file(&running.path).unwrap();
    assert_eq!(told(), Some(ReloadKind::Rejected));
    assert!(running.last().error.unwrap().contains("cannot be read: No such file"));
    assert_eq!(told(), None, "still no file");
    fs::write(&running.path, yaml("1s")).unwrap();
    assert_eq!(told(), Some(ReloadKind::Unchanged), "what runs is back");
    assert_eq!((running.last().outcome, running.last().error), ("unchanged", None));
}

#[tokio::test]
async fn a_replaced_file_is_written_where_it_can_run_and_the_watch_hears_no_news() {
    let running = plain();
    let replace = |text: &str| running.reloader.replace(text.as_bytes().to_vec()).unwrap();
    let file = || fs::read_to_string(&running.path).unwrap();

    assert!(matches!(replace(&yaml("2s")), ReloadOutcome::Applied { version: 2 }));
    assert_eq!((running.drain_secs(), file()), (2, yaml("2s")));
    assert!(running.reloader.reload_if_changed().is_none());

    assert!(matches!(replace(&yaml("3")), ReloadOutcome::Rejected(_)));
    let moved = yaml("3s").replace("listen: 127.0.0.1:0", "listen: 127.0.0.1:1");
    assert!(matches!(replace(&moved), ReloadOutcome::RestartRequired { .. }));
    let not_text = running.reloader.replace(b"listen: \xff".to_vec()).unwrap();
    assert!(
        not_text.problems()[0].ends_with("gateway.yaml: is not UTF-8, first at line 1"),
        "{not_text:?}"
    );
    assert_eq!((running.drain_secs(), file()), (2, yaml("2s")));
    assert!(running.reloader.reload_if_changed().is_none());

    // What runs, over a file that does not.
    fs::write(&running.path, "limits: [").unwrap();
    assert!(running.reloader.reload_if_changed().is_some());
    assert!(matches!(replace(&yaml("2s")), ReloadOutcome::Unchanged));
    assert_eq!(file(), yaml("2s"));
    assert!(running.reloader.reload_if_changed().is_none());

    fs::remove_file(&running.path).unwrap();
    fs::create_dir(&running.path).unwrap();
    assert!(running.reloader.replace(yaml("4s").into_bytes()).is_err());
    assert_eq!((running.drain_secs(), running.last().outcome), (2, "unchanged"));
}

#[tokio::test]
async fn what_cannot_be_read_is_rejected_by_every_trigger() {
    let running = plain();
    let replace = |what: &str| {
        fs::remove_file(&running.path)
            .or_else(|_| fs::remove_dir(&running.path))
            .unwrap();
        match what {
            "is not UTF-8" => fs::write(&running.path, b"listen: \xff").unwrap(),
            "the file is too large" => fs::write(&running.path, vec![b'#'; 17 << 20]).unwrap(),
            "is not a file, expected one" => fs::create_dir(&running.path).unwrap(),
            _ => symlink(&running.path, &running.path).unwrap(),
        }
    };
    for what in [
        "is not UTF-8",
        "the file is too large",
        "is not a file, expected one",
        "cannot be read: Too many levels of symbolic links",
    ] {
        replace(what);
        let told = running.reloader.reload_if_changed().unwrap();
        assert!(told.error().unwrap().contains(what), "{told:?}");
        let told = running.reloader.reload(Trigger::Signal);
        assert!(told.error().unwrap().contains(what), "{told:?}");
        assert_eq!((running.drain_secs(), running.last().outcome), (1, "rejected"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_every_way_of_writing() {
    let running = plain();
    let watch = tokio::spawn(Arc::clone(&running.reloader).watch());
    let beside = running.folder.path().join("gateway.yaml.new");
    let backup = running.folder.path().join("gateway.yaml~");
    let mut secs = 1;
    // Twice each, for a watch that is lost shows the second time.
    for _ in 0..2 {
        let mut expect = async |what: &str, write: &dyn Fn(&str)| {
            secs += 1;
            write(&yaml(&format!("{secs}s")));
            running.wait_for(what, |running| running.drain_secs() == secs).await;
        };
        expect("in place", &|text| fs::write(&running.path, text).unwrap()).await;
        expect("rename over", &|text| {
            fs::write(&beside, text).unwrap();
            fs::rename(&beside, &running.path).unwrap();
        })
        .await;
        expect("backup, then a new file", &|text| {
            fs::rename(&running.path, &backup).unwrap();
            fs::write(&running.path, text).unwrap();
        })
        .await;
        expect("delete and create", &|text| {
            fs::remove_file(&running.path).unwrap();
            fs::write(&running.path, text).unwrap();
        })
        .await;
    }
    assert_eq!(running.current.load().version, secs, "one version a change");
    watch.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_went_away_is_taken_when_it_is_back() {
    let running = plain();
    let watch = tokio::spawn(Arc::clone(&running.reloader).watch());
    fs::write(&running.path, yaml("2s")).unwrap();
    running
        .wait_for("the watch is up", |running| running.drain_secs() == 2)
        .await;
    fs::remove_file(&running.path).unwrap();
    running
        .wait_for("its loss is told", |running| running.last().outcome == "rejected")
        .await;
    assert_eq!(running.drain_secs(), 2, "the old one stays");
    fs::write(&running.path, yaml("3s")).unwrap();
    running
        .wait_for("it is back", |running| running.drain_secs() == 3)
        .await;
    watch.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takes_a_mounted_config_map() {
    let version = |folder: &Path, n: u64| {
        let name = format!("..v{n}");
        fs::create_dir(folder.join(&name)).unwrap();
        fs::write(folder.join(&name).join("gateway.yaml"), yaml(&format!("{n}s"))).unwrap();
        symlink(&name, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    let running = run(|folder| {
        version(folder, 1);
        symlink("..data/gateway.yaml", folder.join("gateway.yaml")).unwrap();
    });
    let watch = tokio::spawn(Arc::clone(&running.reloader).watch());
    for n in 2..5 {
        version(running.folder.path(), n);
        fs::remove_dir_all(running.folder.path().join(format!("..v{}", n - 1))).unwrap();
        running
            .wait_for("the link was swapped", |running| running.drain_secs() == n)
            .await;
    }
    watch.abort();
}

#[test]
fn a_renewed_certificate_is_taken_without_a_word_in_the_file() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let made = Certificates::make();
    let running = run(|folder| {
        fs::copy(made.ca(), folder.join("ca.pem")).unwrap();
        // Nobody is there, and nobody need be.
        let store = "store: {redis: {url: rediss://127.0.0.1:1, tls: {ca: ca.pem}}}\n";
        fs::write(folder.join("gateway.yaml"), yaml("1s") + store).unwrap();
    });
    let store = || running.current.load().config.store.clone();
    let reload = || running.reloader.reload(Trigger::Signal);
    let (first, ca) = (store(), running.folder.path().join("ca.pem"));
    assert!(matches!(reload(), ReloadOutcome::Unchanged));

    fs::write(&ca, "spoilt").unwrap();
    let outcome = reload();
    let problems = outcome.problems();
    assert!(
        matches!(&problems[..], [problem] if problem.contains(": store.redis.tls.ca: ")),
        "{outcome:?}"
    );
    assert_eq!(store(), first);

    fs::copy(made.stranger_ca(), &ca).unwrap();
    assert!(matches!(reload(), ReloadOutcome::Applied { version: 2 }));
    assert_ne!(store(), first);
    assert!(matches!(reload(), ReloadOutcome::Unchanged));
}
