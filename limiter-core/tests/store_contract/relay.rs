//! Stands between a store and its server, and loses answers when told to.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Passes bytes on, both ways.
pub(super) struct Relay {
    port: u16,
    lose: Arc<AtomicBool>,
}

impl Relay {
    /// A relay to the server on `server_port`; it ends with the test's runtime.
    pub(super) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let lose = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&lose);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let told = Arc::clone(&told);
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await {
                        pass_on(client, server, &told).await;
                    }
                });
            }
        });
        Self { port, lose }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The next answer of the server is lost, and with it the connection that it came on.
    pub(super) fn lose_an_answer(&self) {
        self.lose.store(true, Ordering::SeqCst);
    }
}

async fn pass_on(mut client: TcpStream, mut server: TcpStream, lose: &AtomicBool) {
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let passed = tokio::select! {
            len = client.read(&mut asked) => match len {
                Ok(len @ 1..) => server.write_all(&asked[..len]).await,
                _ => return,
            },
            len = server.read(&mut answered) => match len {
                Ok(len @ 1..) if !lose.swap(false, Ordering::SeqCst) => client.write_all(&answered[..len]).await,
                _ => return,
            },
        };
        if passed.is_err() {
            return;
        }
    }
}
