(function () {
  "use strict";
  var held = document.getElementById("instants");
  if (!held) return;
  var data = JSON.parse(held.content.textContent);
  var slider = document.getElementById("instant"), shown = document.getElementById("shown");
  var play = document.getElementById("play"), timer = null;
  var cables = document.querySelectorAll("#fabric [data-link]");
  var before = Array.prototype.map.call(cables, function (cable) { return cable.getAttribute("stroke"); });

  function show() {
    var step = Number(slider.value);
    Array.prototype.forEach.call(cables, function (cable, number) {
      var colour = before[number];
      if (step > 0) colour = data.colours[Number(data.classes[Number(cable.dataset.link)][step - 1])];
      if (colour === null) cable.removeAttribute("stroke"); else cable.setAttribute("stroke", colour);
    });
    shown.textContent = step === 0 ? data.overall : data.words[step - 1];
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  play.addEventListener("click", function () {
    if (timer !== null) { stop(); return; }
    if (slider.value === slider.max) slider.value = 0;
    play.textContent = "Stop";
    timer = setInterval(function () {
      slider.value = Number(slider.value) + 1;
      show();
      if (slider.value === slider.max) stop();
    }, 60);
  });
  slider.addEventListener("input", show);
  show();
})();
