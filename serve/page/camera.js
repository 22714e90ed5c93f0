// Frames of the camera, one at a time.

const QUALITY = 0.85;

/** Opens the camera. Throws an Error that says in words why it cannot. */
export async function openCamera() {
  if (!navigator.mediaDevices) {
    throw new Error("Browsers give the camera only to pages from https:// or from this very machine.");
  }
  let stream = null;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: "environment", width: { ideal: 1280 } },
    });
    const video = document.createElement("video");
    video.muted = true;
    video.playsInline = true;
    video.srcObject = stream;
    await video.play();
    return new Camera(stream, video);
  } catch (error) {
    if (stream) stop(stream); // else the camera would stay on
    const reasons = {
      NotAllowedError: "This page may not use the camera: the browser’s settings can allow it.",
      NotFoundError: "There is no camera.",
      NotReadableError: "The camera is in use elsewhere.",
    };
    throw new Error(reasons[error.name] ?? `The camera cannot be used: ${error.message}`);
  }
}

class Camera {
  constructor(stream, video) {
    this.stream = stream;
    this.video = video;
  }

  /** The present frame, and it as a JPEG file. Throws an Error once the camera is gone. */
  async frame() {
    if (this.stream.getVideoTracks().every((track) => track.readyState === "ended")) {
      throw new Error("The camera is gone: it was unplugged, or the browser took it away.");
    }
    const { videoWidth: width, videoHeight: height } = this.video;
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d").drawImage(this.video, 0, 0);
    const file = await canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY });
    return { picture: canvas.transferToImageBitmap(), file };
  }

  close() {
    stop(this.stream);
    this.video.srcObject = null;
  }
}

function stop(stream) {
  for (const track of stream.getTracks()) track.stop();
}
