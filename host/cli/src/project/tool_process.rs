//! A build tool that is ended together with the programs that it started.

use std::io;
use std::process::{ExitStatus, Output};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// A running tool in a process group of its own. Dropping it ends the group: cargo leaves its compilers and build scripts
/// running when it is killed alone.
pub(super) struct ToolProcess {
    child: Child,
}

impl ToolProcess {
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        Ok(Self { child })
    }

    /// Takes the pipes of its output and of its messages, if it has them.
    pub(super) fn take_pipes(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Waits for its end, and reads what it prints meanwhile.
    pub(super) async fn output(mut self) -> io::Result<Output> {
        let (stdout, stderr) = self.take_pipes();
        let (stdout, stderr, status) =
            tokio::try_join!(read_to_end(stdout), read_to_end(stderr), self.child.wait())?;
        Ok(Output { status, stdout, stderr })
    }
}

impl Drop for ToolProcess {
    fn drop(&mut self) {
        // Without a number the tool has ended, and another process may have its number.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = id {
            // Fails only if the group has ended.
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

async fn read_to_end(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn dropping_a_tool_ends_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 300 & printf x; wait"]).stdout(Stdio::piped());
        let mut tool = ToolProcess::spawn(&mut command).unwrap();
        let mut started = tool.take_pipes().0.unwrap();
        let mut byte = [0u8; 1];
        assert_eq!(started.read(&mut byte).await.unwrap(), 1);
        drop(tool);
        // The pipe is closed when the last process that has it has ended.
        let closed = tokio::time::timeout(Duration::from_secs(10), started.read(&mut byte));
        assert_eq!(closed.await.unwrap().unwrap(), 0);
    }
}
