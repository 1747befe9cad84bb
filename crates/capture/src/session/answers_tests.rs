//! Answers that go through a log come back as they were given.

use std::io::Cursor;

use wallscope_observe::{LogFile, LogReader};
use zerocopy::FromZeros;

use super::*;

/// Gives each question an answer of its own.
struct Teller;

impl CodeNames for Teller {
    fn frame(&self, item: Item, _: Unwinding, scope: AddressScope) -> NamedFrame {
        let Item::Native(word) = item else {
            unreachable!("the tests ask for native frames alone")
        };
        NamedFrame {
            module: CodeModule::Unknown,
            ..nameless(FrameKind::Native, word.0 + u64::from(scope.pid))
        }
    }

    fn managed(&self, pid: u32, word: Word) -> ManagedFrame {
        ManagedFrame {
            frame: nameless(FrameKind::Python, word.code + u64::from(pid)),
            coroutine: Some("serve".into()),
        }
    }

    fn roles(&self, _: u32, frames: &[FrameWord]) -> Vec<Role> {
        vec![Role::Glue; frames.len()]
    }

    fn program(&self, pid: u32, former: u32) -> Option<Arc<str>> {
        Some(format!("program {pid} {former}").into())
    }

    fn maker(&self, pid: u32) -> Option<(String, String)> {
        Some((format!("maker {pid}"), "--perf-map".into()))
    }
}

impl HostNames for Teller {
    fn kernel_functions(&self, _: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
        [(7, "do_wait".into())].into_iter().collect()
    }

    fn other_end(&self, socket: &SocketRecord) -> Option<(u32, String)> {
        Some((socket.cookie as u32, "peer".into()))
    }
}

/// The answers to all kinds of questions.
#[derive(Debug, PartialEq)]
struct All {
    frame: NamedFrame,
    managed: (NamedFrame, Option<Arc<str>>),
    roles: Vec<Role>,
    program: Option<Arc<str>>,
    maker: Option<(String, String)>,
    kernel: FxHashMap<u64, Arc<str>>,
    other_end: Option<(u32, String)>,
}

/// Asks all kinds of questions about process `pid`.
fn ask(names: Names<'_>, pid: u32) -> All {
    let scope = AddressScope { pid, code: 2 };
    let word = Word {
        code: 40,
        check: 1,
        lasti: 2,
        entry: false,
    };
    let managed = names.code.managed(pid, word);
    let socket = SocketRecord {
        cookie: u64::from(pid),
        ..SocketRecord::new_zeroed()
    };
    All {
        frame: (names.code).frame(Item::Native(FrameWord(3)), Unwinding::Deferred, scope),
        managed: (managed.frame, managed.coroutine),
        roles: names.code.roles(pid, &[FrameWord(3), FrameWord(4)]),
        program: names.code.program(pid, 1),
        maker: names.code.maker(pid),
        kernel: names.host.kernel_functions(&FxHashMap::default()),
        other_end: names.host.other_end(&socket),
    }
}

#[test]
fn a_log_gives_the_answers_that_were_given_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LogWriter::begin(LogFile::create(&path).unwrap(), "test", LogFile::BOUND);
    let teller = Names {
        code: &Teller,
        host: &Teller,
    };
    let logged = Logged::new(teller, log);
    let told = ask(logged.names(), 5);
    assert_eq!(told, ask(teller, 5), "what is logged is passed on");
    // Asked again, most are not written again.
    let again = ask(logged.names(), 5);
    assert_eq!(told, again);
    logged.into_log().close().unwrap();

    let mut reader = LogReader::new(Cursor::new(std::fs::read(&path).unwrap())).unwrap();
    let (mut answers, mut kept) = (Answers::default(), 0);
    while let Some(observation) = reader.next() {
        answers.observe(&observation);
        kept += 1;
    }
    let names = Names {
        code: &answers,
        host: &answers,
    };
    assert_eq!((ask(names, 5), answers.missing()), (told, 0));
    // Frames, makers and functions of the kernel twice, the four other kinds once.
    assert_eq!(kept, 10);

    let unknown = ask(names, 6);
    assert_eq!(answers.missing(), 6);
    assert_eq!(unknown.roles, [Role::Other; 2]);
    assert_eq!(
        (unknown.program, unknown.maker, unknown.other_end),
        (None, None, None)
    );
}
