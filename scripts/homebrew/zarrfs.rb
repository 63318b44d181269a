# The formula of a tap, for Linux. scripts/release-recipes writes the version and the sha256 of a release.
class Zarrfs < Formula
  desc "Mount a Zarr hierarchy as a read-only directory tree"
  homepage "https://github.com/zarrfs/zarrfs"
  url "https://github.com/zarrfs/zarrfs/releases/download/v0.1.0/zarrfs-0.1.0.tar.gz"
  sha256 "SKIP"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "build", "--release", "--locked", "--features", "mongodb",
           "--bin", "zarrfs", "--target-dir", "target"
    ENV["DESTDIR"] = buildpath/"staged"
    ENV["PREFIX"] = "/"
    ENV["SBINDIR"] = "/sbin"
    ENV["ZARRFS_BINARY"] = buildpath/"target/release/zarrfs"
    system "scripts/install"
    # Neither units nor helpers of mount(8), which systems do not look for in a prefix of Homebrew.
    bin.install "staged/bin/zarrfs"
    man.install Dir["staged/share/man/*"]
    bash_completion.install "staged/share/bash-completion/completions/zarrfs"
    zsh_completion.install "staged/share/zsh/site-functions/_zarrfs"
    fish_completion.install "staged/share/fish/vendor_completions.d/zarrfs.fish"
  end

  def caveats
    "A mount by an ordinary user needs fusermount3 of the system (package fuse3)."
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/zarrfs -V")
    system bin/"zarrfs", "check", "demo:"
    system bin/"zarrfs", "export", "demo:v3/t2m", "t2m.npy"
  end
end
