//! Answers each piece that it reads with the same piece: a task for each connection, two worker threads.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn echo(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut piece = [0; 4096];
    loop {
        match connection.read(&mut piece).await? {
            0 => return Ok(()),
            n => connection.write_all(&piece[..n]).await?,
        }
    }
}

async fn serve() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (connection, _) = listener.accept().await?;
        // A connection that fails ends alone.
        tokio::spawn(async { echo(connection).await.ok() });
    }
}

fn main() -> std::io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(2)
        .enable_io()
        .build()?
        .block_on(serve())
}
