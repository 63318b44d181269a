# nix-build -E '(import <nixpkgs> { }).callPackage ./scripts/nix/package.nix { }'
{
  lib,
  rustPlatform,
  fuse3,
  makeWrapper,
}:

let
  root = ../..;
  manifest = (lib.importTOML (root + "/Cargo.toml")).package;
in
rustPlatform.buildRustPackage {
  pname = manifest.name;
  inherit (manifest) version;

  src = lib.cleanSourceWith {
    src = root;
    filter = path: type: baseNameOf path != "target" && lib.cleanSourceFilter path type;
  };
  cargoLock.lockFile = root + "/Cargo.lock";
  buildFeatures = [ "mongodb" ];

  # The tests mount, which a build must not. `doInstallCheck` reads the demo store instead.
  doCheck = false;
  doInstallCheck = true;
  installCheckPhase = ''
    $out/bin/zarrfs check demo:
    $out/bin/zarrfs export demo:v3/t2m t2m.npy
  '';

  nativeBuildInputs = [ makeWrapper ];

  postInstall = ''
    DESTDIR=$PWD/staged PREFIX=/ SBINDIR=/sbin ZARRFS_BINARY=$out/bin/zarrfs bash scripts/install
    cp -r staged/share $out/
  ''
  # Ordinary users mount with fusermount3; the one of NixOS, which has the rights for it, comes first.
  + ''
    wrapProgram $out/bin/zarrfs --suffix PATH : ${lib.makeBinPath [ fuse3 ]}
  '';

  meta = {
    inherit (manifest) description homepage;
    license = with lib.licenses; [
      mit
      asl20
    ];
    platforms = lib.platforms.linux;
    mainProgram = "zarrfs";
  };
}
