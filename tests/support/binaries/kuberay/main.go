// The controllers of RayJobs and RayClusters, as KubeRay's own main starts them, but without its webhook of RayClusters,
// which needs an older controller-runtime and is off by default.
package main

import (
	"flag"
	"log"

	"github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	controller "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	health := flag.String("health-probe-bind-address", ":8081", "address for probes")
	flag.Parse()
	controller.SetLogger(zap.New())

	types := runtime.NewScheme()
	must(scheme.AddToScheme(types))
	must(rayv1.AddToScheme(types))
	manager, err := controller.NewManager(controller.GetConfigOrDie(), controller.Options{
		Scheme:                 types,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: *health,
	})
	must(err)
	stopped, configuration := controller.SetupSignalHandler(), v1alpha1.Configuration{}
	clusters := ray.NewReconciler(stopped, manager, ray.RayClusterReconcilerOptions{}, configuration)
	must(clusters.SetupWithManager(manager, 4))
	jobs := ray.NewRayJobReconciler(stopped, manager, ray.RayJobReconcilerOptions{}, configuration)
	must(jobs.SetupWithManager(manager, 4))
	must(manager.AddReadyzCheck("readyz", healthz.Ping))
	must(manager.Start(stopped))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
